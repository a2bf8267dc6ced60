"""ViT, DeiT and DINOv2 give images the labels and the vectors that transformers computes in float64."""

import base64
import io
import json
import pickle
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import engine
from engine import Engine, InputError, UnsupportedError, load_model
from engine.base.errors import WeightsError
from engine.cli.main import main
from engine.files.safetensors import read_safetensors

from ..tools.changed_folders import changed
from ..tools.encoders import convert_encoder, engine_of
from ..tools.head_models import folder_of
from ..tools.paths import IMAGES
from ..tools.running import COMPILED, RUNNING

pytest.importorskip("PIL")

from PIL import Image

from ..tools.image_files import make_images

MODELS = ("vit", "vit_several", "deit", "deit_teacher", "dinov2", "dinov2_registers")


@pytest.fixture(scope="module")
def images():
    return make_images()


def expected_of(name):
    return json.loads((IMAGES / name / "expected.json").read_text(encoding="utf-8"))


def same_labels(found, expected, least=2e-5):
    for one, right in zip(found, expected, strict=True):
        assert [label["label"] for label in one] == [label["label"] for label in right["labels"]]
        assert max(abs(a["score"] - b["score"]) for a, b in zip(one, right["labels"], strict=True)) <= least


@pytest.mark.parametrize("backend", RUNNING)
@pytest.mark.parametrize("name", MODELS)
def test_labels_and_vectors(name, backend, images, tmp_path):
    expected = expected_of(name)
    loaded = Engine.load(IMAGES / name, backend=backend)
    loaded.save(tmp_path / "model.npz")
    given = [images[image] for image in expected]
    found = loaded.classify(given, top_k=None)
    same_labels(found, expected.values())
    vectors = loaded.encode(given)
    assert np.abs(vectors - [one["vector"] for one in expected.values()]).max() <= 2e-5
    saved = Engine.load(tmp_path / "model.npz", backend=backend)
    assert saved.classify(given, top_k=None) == found
    assert np.array_equal(saved.encode(given), vectors)
    assert loaded.get_embedding_dimension() == vectors.shape[1] == 32
    assert [len(rows) for rows in loaded.encode(given, output_value="token_embeddings")] == [
        one["tokens"] for one in expected.values()]


@pytest.mark.parametrize(("name", "precision", "backend"), [
    (name, precision, COMPILED[(i + j) % len(COMPILED)])
    for i, name in enumerate(("vit", "deit_teacher", "dinov2_registers"))
    for j, precision in enumerate(("float32", "bfloat16", "int8"))])
def test_an_image_alone_has_the_bits_that_it_has_in_company(name, precision, backend, images):
    model = load_model(IMAGES / name)
    given = [source for image, source in images.items() if image != "long.png"]
    by_threads = []
    for threads in (1, 2, 4):
        loaded = engine_of(convert_encoder(model.encoder, precision, precision == "int8"), backend=backend,
                           precision=precision, threads=threads)
        together, vectors = loaded.classify(given, top_k=None), loaded.encode(given)
        if threads == 2:
            assert [loaded.classify([image], top_k=None)[0] for image in given] == together
            assert loaded.classify(given[::-1], top_k=None, batch_size=3)[::-1] == together
            assert all(np.array_equal(loaded.encode(image), row) for image, row in zip(given, vectors, strict=True))
        by_threads.append((together, vectors))
    assert all(labels == by_threads[0][0] for labels, _ in by_threads)
    assert all(np.array_equal(rows, by_threads[0][1]) for _, rows in by_threads)
    if precision != "float32":
        best = [one[0]["label"] for one in by_threads[0][0]]
        exact = [one["label"] for one in Engine.load(IMAGES / name, backend=backend).classify(given)]
        assert sum(a == b for a, b in zip(best, exact, strict=True)) >= 0.85 * len(exact)


def test_more_images_than_are_read_at_one_time(images):
    loaded = Engine.load(IMAGES / "vit", threads=3)
    given = [images["rgb.png"], images["grey.png"]] * 70
    vectors = loaded.encode(given)
    assert vectors.shape == (140, 32)
    assert (vectors[::2] == vectors[0]).all()
    assert (vectors[1::2] == vectors[1]).all()
    assert np.array_equal(loaded.encode(iter(given)), vectors)
    assert loaded.classify(given)[:2] == loaded.classify(given[:2])
    with pytest.raises(InputError, match=r"^image 130: it cannot be read as PNG"):
        loaded.encode([*given[:130], images["rgb.png"][:200]])


def test_a_stream_of_images(images):
    loaded, both = Engine.load(IMAGES / "vit"), Engine.load(IMAGES / "clip")
    given = [images["rgb.png"], images["grey.png"], images["cmyk.jpg"]] * 3
    for model in (loaded, both):
        parts = [*model.encode_stream(iter(given), rows=4, normalize_embeddings=True)]
        assert [len(part) for part in parts] == [4, 4, 1]
        assert np.array_equal(np.concatenate(parts), model.encode(given, normalize_embeddings=True))
    classes = loaded.encode_stream(given, rows=5, result="classes", top_k=None)
    assert [one for part in classes for one in part] == loaded.classify(given, top_k=None)
    stream = both.encode_stream([*given[:5], b"no image"], rows=2)
    assert [len(next(stream)), len(next(stream))] == [2, 2]
    with pytest.raises(InputError, match=r"^image 5: its first bytes are those of none of the formats"):
        next(stream)
    for wrong in (["a text", given[0]], [given[0], "a text"]):
        with pytest.raises(InputError, match=r"^(sentence|image) 1"):
            [*both.encode_stream(wrong, rows=1)][1]


def test_a_path_is_a_text_where_a_model_reads_images_alone(images, tmp_path):
    loaded = engine.load(IMAGES / "dinov2")
    assert isinstance(loaded, Engine)
    assert loaded.reads_images
    (tmp_path / "photo.png").write_bytes(images["rgb.png"])
    path = tmp_path / "photo.png"
    one = loaded.classify(str(path))
    assert one == loaded.classify([str(path)])[0] == loaded.classify(path) == loaded.classify(images["rgb.png"])
    assert one == loaded.classify(Image.open(path)) == loaded.classify(np.asarray(Image.open(path)))
    assert one == loaded.classify(np.asarray(Image.open(path))[None])[0]
    assert one == pickle.loads(pickle.dumps(loaded)).classify(path)
    assert one == loaded.classify("data:image/png;base64," + base64.b64encode(images["rgb.png"]).decode())
    assert one["label"] == expected_of("dinov2")["rgb.png"]["labels"][0]["label"]
    assert loaded.classify([]) == []
    assert loaded.encode([]).shape == (0, 32)
    assert np.allclose(np.linalg.norm(loaded.encode(path, normalize_embeddings=True)), 1, atol=1e-6)
    features = loaded.encode(path, output_value=None)
    assert sorted(features) == ["sentence_embedding", "token_embeddings"]
    assert np.array_equal(features["sentence_embedding"], loaded.encode(path))
    assert np.array_equal(features["token_embeddings"][0], features["sentence_embedding"])
    with pytest.raises(InputError, match=r"image 1 \(.*none.png\): there is no such file|None"):
        loaded.classify([path, None])


def test_calls_that_are_refused(images, tmp_path, refusals):
    loaded, text = Engine.load(IMAGES / "vit"), Engine.load(folder_of("bert_classify"))
    (tmp_path / "photos").mkdir()
    shutil.copytree(IMAGES / "vit", tmp_path / "bare")
    (tmp_path / "bare" / "preprocessor_config.json").unlink()
    bare, short = Engine.load(tmp_path / "bare"), Engine.load(IMAGES / "vit", max_batch_tokens=9)
    picture = images["rgb.png"]
    refusals(lambda call: call(), [
        (lambda: loaded.classify(["none.png"]),), (lambda: loaded.encode([picture, b"x"]),),
        (lambda: loaded.classify("https://example.org/a.png"),), (lambda: loaded.classify("photos/*.png"),),
        (lambda: loaded.classify(tmp_path / "photos"),), (lambda: loaded.classify("~/none.png"),),
        (lambda: loaded.classify("data:image/png,abc"),), (lambda: loaded.encode(io.BytesIO(picture)),),
        (lambda: loaded.encode(picture, prompt="a"),), (lambda: loaded.classify([picture, ("a", "b")]),),
        (lambda: loaded.tag([picture]),), (lambda: loaded.predict(picture),), (lambda: loaded.tokenize(["a"]),),
        (lambda: loaded.forward([[1]]),), (lambda: loaded.classify(picture, coverage=0.9),),
        (lambda: bare.classify(picture),), (lambda: short.encode(picture),), (lambda: text.classify(picture),),
        (lambda: text.classify([Path("a.png")]),), (lambda: text.encode(np.zeros((3, 3, 3), np.uint8)),),
        (lambda: text.classify(["a text", picture]),), (lambda: text.image_encoder,),
    ])


def test_a_preprocessor_of_another_size_is_told_with_the_image(images, tmp_path):
    shutil.copytree(IMAGES / "vit", tmp_path / "vit")
    (tmp_path / "vit" / "preprocessor_config.json").write_text('{"size": 40}', encoding="utf-8")
    with pytest.raises(InputError, match=r"image 0: an image must be \[3, 24, 24\] for this model, not \[3, 40, 40\]"):
        Engine.load(tmp_path / "vit").encode([images["rgb.png"]])


def test_heads_that_do_not_fit_the_input_are_refused():
    teacher, vit = (load_model(IMAGES / name).encoder for name in ("deit_teacher", "vit"))
    with pytest.raises(WeightsError, match="a head of rows first_two needs a stem that reads images, with two first"):
        engine_of(replace(vit, heads=teacher.heads))
    with pytest.raises(WeightsError, match="images must be None, or an ImageConfig beside a stem that reads images"):
        engine_of(replace(vit, stem=None, heads=()))


def test_tensors_of_other_axes_are_refused(tmp_path):
    [linear] = {name for name in read_safetensors(IMAGES / "dinov2" / "model.safetensors")
                if name.endswith("layer.0.attention.output.dense.weight")}
    wrong = changed(tmp_path / "scale", IMAGES / "dinov2", {linear: np.zeros((32, 64, 64), np.float32)})
    with pytest.raises(WeightsError, match=r"scale.lambda1 \[32\] has no .* with as many rows beside it"):
        Engine.load(wrong)
    flat = dict.fromkeys(("cls_classifier.weight", "distillation_classifier.weight"), np.zeros(32, np.float32))
    with pytest.raises(WeightsError, match="must both be there, with one shape of 2 axes"):
        Engine.load(changed(tmp_path / "flat", IMAGES / "deit_teacher", flat))


def test_info_names_the_input_and_the_labels(capsys):
    assert main(["info", str(IMAGES / "vit")]) == 0
    printed = capsys.readouterr().out
    assert "resized to 24 x 24" in printed
    assert "classify (7 labels)" in printed


def test_no_head_of_words_for_images():
    runner = Engine.load(IMAGES / "vit").runner_of("classify")
    with pytest.raises(UnsupportedError, match="this model reads images, and no texts"):
        runner.encoder.tokens(["a text"])


def test_the_command_line_reads_images_or_a_list_of_paths(images, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("more").mkdir()
    for name in ("rgb.png", "grey.jpg", "more/small.png"):
        Path(name).write_bytes(images[Path(name).name])
    Path("paths.txt").write_text("rgb.png\ngrey.jpg\n", encoding="utf-8")
    loaded, model = Engine.load(IMAGES / "vit"), str(IMAGES / "vit")
    results = loaded.classify(["rgb.png", "grey.jpg", "more/small.png"])
    by_name = dict(zip(("rgb", "grey", "small"), results, strict=True))
    for given, names in ((["rgb.png"], "rgb"), (["paths.txt"], "rgb grey"), (["grey.jpg", "rgb.png"], "grey rgb"),
                         (["**/*.png", "grey.jpg"], "small rgb grey"), (["more/*"], "small")):
        assert main(["classify", model, *given[:1], "--top-k", "1", *given[1:]]) == 0
        assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == [
            by_name[name] for name in names.split()]
    assert main(["encode", model, "rgb.png", "-o", "v.npy", "more/small.png"]) == 0
    assert np.array_equal(np.load("v.npy"), loaded.encode(["rgb.png", "more/small.png"]))
    capsys.readouterr()
    for given, message in ((["rgb.png", "paths.txt"], "'paths.txt' is no image by its name, beside 'rgb.png'"),
                           (["*"], "is no image by its name, beside"), (["*.gif"], "no file matches this pattern"),
                           (["more"], "a folder; give its images by a pattern in quotes, such as 'more/*.jpg'"),
                           (["rgb.png", "--text", "a"], "--text comes in place of a file")):
        assert main(["classify", model, *given]) == 1
        assert message in capsys.readouterr().err
