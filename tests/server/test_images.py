"""Images in requests: each route gives the bits of the library, and names the place of what is wrong."""

import base64
import json
from contextlib import ExitStack

import numpy as np
import pytest

from engine import Engine
from engine.cli.main import parsers
from engine.cli.serve import _model

from ..tools.head_models import folder_of
from ..tools.paths import IMAGES

pytest.importorskip("uvicorn")
pytest.importorskip("PIL")

from PIL import Image

from engine.server import images as sent
from engine.server.settings import MAX_IMAGE_PIXELS, MAX_IMAGES

from ..tools.image_files import picture, saved
from ..tools.serving import serving

FILES = [saved(Image.fromarray(picture(45, 60)), "PNG"),
         saved(Image.fromarray(picture(30, 33, 4)), "WEBP", lossless=True),
         saved(Image.fromarray(picture(50, 41, 1)), "JPEG")]
LABELS = ["<17>", "<33>", "<64>"]
GIF = [Image.fromarray(picture(9, 9, 1, seed)) for seed in range(3)]


def text_of(data):
    return base64.b64encode(data).decode()


def url_of(data, kind="png"):
    return f"data:image/{kind};base64,{text_of(data)}"


@pytest.fixture(scope="module")
def served():
    with ExitStack() as stack:
        made = {}

        def get(name):
            if name not in made:
                model = Engine.load(folder_of(name) if name == "bert_classify" else IMAGES / name, threads=1)
                made[name] = stack.enter_context(serving(model))
            return made[name]

        yield get


FORMS = {
    "data": url_of, "image": lambda data: {"image": url_of(data)}, "plain": lambda data: {"image": text_of(data)},
    "url": lambda data: {"type": "image_url", "image_url": {"url": url_of(data, "jpeg")}},
    "content": lambda data: {"content": [{"type": "image_url", "image_url": {"url": url_of(data)}}]},
    "flat url": lambda data: {"type": "input_image", "image_url": url_of(data)},
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["vit", "clip"])
def test_vectors_are_those_of_the_library_alone_and_in_a_list(served, name, form):
    client = served(name)
    expected = client.model.encode(FILES)
    given = [FORMS[form](data) for data in FILES]
    found = client.post("/v1/embeddings", {"input": given})
    assert found.status == 200, found.data
    assert np.array_equal(np.array([one["embedding"] for one in found.data["data"]], np.float32), expected)
    assert found.data["usage"]["prompt_tokens"] > len(FILES)
    [alone] = client.post("/v1/embeddings", {"input": given[0], "dimensions": 5}).data["data"]
    assert len(alone["embedding"]) == 5
    found = client.post("/embed", {"inputs": given[1], "normalize": False})
    assert np.array_equal(np.array(found.data, np.float32), expected[1:2])


def test_images_of_a_model_without_texts_may_be_base64_alone(served):
    client = served("vit")
    found = client.post("/v1/embeddings", {"input": [text_of(data) for data in FILES]})
    assert np.array_equal(np.array([one["embedding"] for one in found.data["data"]], np.float32),
                          client.model.encode(FILES))


def test_images_in_the_form_of_cohere(served):
    client = served("clip")
    found = client.post("/v2/embed", {"images": [url_of(data) for data in FILES], "input_type": "image"})
    assert np.array_equal(np.array(found.data["embeddings"]["float"], np.float32), client.model.encode(FILES))
    assert client.post("/v2/embed", {"texts": ["a"], "images": [url_of(FILES[0])]}).status == 400
    assert client.post("/v2/embed", {}).status == 400


def test_texts_of_a_model_that_reads_both(served):
    client = served("clip")
    texts = ["<17> <18>", "<20>"]
    found = client.post("/v1/embeddings", {"input": [{"text": text} for text in texts]})
    assert np.array_equal(np.array([one["embedding"] for one in found.data["data"]], np.float32),
                          client.model.encode(texts))


@pytest.mark.parametrize("form", FORMS)
def test_labels_of_images(served, form):
    client = served("vit")
    given = [FORMS[form](data) for data in FILES]
    expected = json.loads(json.dumps(client.model.classify(FILES, top_k=None)))
    assert client.post("/predict", {"inputs": given}).data == expected
    assert client.post("/predict", {"inputs": given[2]}).data == expected[2]


def test_labels_of_the_client(served):
    client = served("clip")
    parameters = {"candidate_labels": LABELS, "hypothesis_template": "<9> {}"}
    expected = json.loads(json.dumps(client.model.classify(FILES, top_k=None, **parameters)))
    given = [url_of(data) for data in FILES]
    assert client.post("/zero-shot", {"inputs": given, "parameters": parameters}).data == expected
    assert client.post("/zero-shot", {"inputs": {"image": given[0]}, "parameters": parameters}).data == expected[0]
    refused = client.post("/zero-shot", {"inputs": given, "parameters": parameters | {"multi_label": True}})
    assert (refused.status, "multi_label" in refused.data["error"]) == (400, True)
    assert client.post("/predict", {"inputs": given}).status == 400


LARGE = saved(Image.new("1", (4096, MAX_IMAGE_PIXELS // 4096 + 1)), "PNG")
WRONG = {
    "address": ("http://localhost/cat.png", "nothing is fetched"), "file": ("file:///etc/passwd", "nothing is fetched"),
    "empty": ("data:image/png;base64,", "is empty"), "kind": ("data:text/plain;base64,AAAA", "no start of an image"),
    "not base64": ("data:image/png;base64,*", "no base64"), "no base64": ("data:image/png,abc", "no start of an image"),
    "letters": ("data:image/png;base64,é", "no base64"), "start": (url_of(FILES[0][:20]), "cannot be read"),
    "no image": (url_of(b"hello world"), "none of the formats"), "cut": (url_of(FILES[0][:400]), "damaged"),
    "pixels": (url_of(LARGE), "pixels"),
    "animated": (url_of(saved(GIF[0], "GIF", save_all=True, append_images=GIF[1:])), "3 images"),
}


@pytest.mark.parametrize("case", WRONG)
@pytest.mark.parametrize("name", ["vit", "clip"])
def test_what_is_wrong_names_its_place(served, name, case):
    client = served(name)
    given, message = WRONG[case]
    error = client.post("/v1/embeddings", {"input": [url_of(FILES[0]), {"image": given}]}).data["error"]
    assert message in error["message"]
    assert error["param"] == "input[1]"
    error = client.post("/v1/embeddings", {"input": {"image_url": {"url": given}}}).data["error"]
    assert error["param"] == "input"
    assert client.served.service.statistics().failed == 0


def test_inputs_that_do_not_fit(served):
    both, images, texts = served("clip"), served("vit"), served("bert_classify")
    picture_url = url_of(FILES[0])
    for client, path, body, param, message in (
            (both, "/v1/embeddings", {"input": [picture_url, "a cat"]}, "input[1]", "texts and images"),
            (both, "/v1/embeddings", {"input": ["a cat", {"image": picture_url}]}, "input[1]", "texts and images"),
            (both, "/v1/embeddings", {"input": [{"image": picture_url, "text": "a"}]}, "input[0]", "one of them"),
            (both, "/v1/embeddings", {"input": [{}]}, "input[0]", "one of them"),
            (both, "/v1/embeddings", {"input": picture_url, "input_type": "query"}, "prompt_name", "without a prompt"),
            (both, "/v1/embeddings", {"input": [picture_url] * (MAX_IMAGES + 1)}, "input", f"{MAX_IMAGES} images"),
            (images, "/v1/embeddings", {"input": ["a cat"]}, "input[0]", "no base64"),
            (images, "/v1/embeddings", {"input": {"text": "a cat"}}, "input", "no texts"),
            (images, "/v1/embeddings", {"input": [[1, 2]]}, "input[0]", "no texts"),
            (texts, "/v1/embeddings", {"input": {"image": picture_url}}, "input", "no images")):
        found = client.post(path, body)
        assert found.status in (400, 413), found.data
        assert message in found.data["error"]["message"]
        assert found.data["error"]["param"] == param
    assert texts.post("/predict", {"inputs": [{"image": picture_url}]}).status in (400, 422)


def test_memory_of_images_is_counted_before_they_are_read(served, monkeypatch):
    client = served("vit")
    held = []
    room = client.served.service.memory
    hold = room.hold
    monkeypatch.setattr(room, "hold", lambda one, size: (held.append(size), hold(one, size)))
    large = url_of(saved(Image.new("L", (2000, 3000)), "PNG"))
    assert client.post("/v1/embeddings", {"input": [large] * 2}).status == 200
    assert 12 * 6_000_000 < max(held) < 13 * 6_000_000, "one is read at a time"
    monkeypatch.setattr(room, "most", 12 * 6_000_000)
    assert client.post("/v1/embeddings", {"input": large}).status == 413
    assert room.used == 0


def test_the_command_loads_a_model_of_images():
    model = _model(parsers()[0].parse_args(["serve", str(IMAGES / "vit"), "--threads", "1"]), str(IMAGES / "vit"))
    with serving(model) as client:
        assert client.get("/info").status == client.get("/v1/models").status == client.get("/metrics").status == 200
        assert client.post("/tokenize", {"inputs": "a"}).status == 400
        assert client.post("/decode", {"ids": [1]}).status == 400
        assert client.post("/embed_sparse", {"inputs": "a"}).status == 400
    assert sent.reads_images(model)
