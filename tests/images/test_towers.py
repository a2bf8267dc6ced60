"""The image encoders of CLIP and SigLIP give the embeddings that transformers computes in float64."""

import json
import pickle
import shutil

import numpy as np
import pytest

from engine import Engine, EngineError, UnsupportedError
from engine.cli.main import main

from ..tools.paths import IMAGES
from ..tools.running import COMPILED, RUNNING
from ..tools.tiny_models import write_modules_json

pytest.importorskip("PIL")

from ..tools.image_files import make_images

TOWERS = {"clip": {"task": "image"}, "siglip": {"task": "image"}, "clip_projected": {}}


@pytest.fixture(scope="module")
def images():
    return make_images()


@pytest.mark.parametrize("backend", RUNNING)
@pytest.mark.parametrize("name", TOWERS)
def test_vectors(name, backend, images, tmp_path):
    expected = json.loads((IMAGES / name / "expected.json").read_text(encoding="utf-8"))
    loaded = Engine.load(IMAGES / name, backend=backend, **TOWERS[name])
    given = [images[image] for image in expected]
    vectors = loaded.encode(given)
    assert np.abs(vectors - [one["vector"] for one in expected.values()]).max() <= 2e-5
    assert loaded.get_embedding_dimension() == vectors.shape[1]
    loaded.save(tmp_path / "images.npz")
    assert np.array_equal(Engine.load(tmp_path / "images.npz", backend=backend).encode(given), vectors)


@pytest.mark.parametrize("backend", COMPILED)
@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8"])
def test_an_image_alone_has_the_bits_that_it_has_in_company(precision, backend, images):
    given = [images[name] for name in ("rgb.png", "cmyk.jpg", "small.png", "turned_5.jpg", "one.png")]
    found = []
    for threads in (1, 2, 3):
        loaded = Engine.load(IMAGES / "clip", backend=backend, precision=precision, threads=threads, task="image")
        found.append(loaded.encode(given))
        assert all(np.array_equal(loaded.encode(image), row) for image, row in zip(given, found[0], strict=True))
    assert all(np.array_equal(vectors, found[0]) for vectors in found)


@pytest.mark.parametrize("name", ["clip", "siglip"])
def test_one_engine_has_both_encoders(name, images):
    expected = json.loads((IMAGES / name / "expected.json").read_text(encoding="utf-8"))
    given, labels = [images[name] for name in expected], ["<17>", "<33>", "<64>", "<101>"]
    options = {"candidate_labels": labels, "hypothesis_template": "<9> <10> {}", "top_k": None}
    for loaded in (Engine.load(IMAGES / name), pickle.loads(pickle.dumps(Engine.load(IMAGES / name)))):
        assert "_image_engine" not in vars(loaded)      # until an image comes
        assert loaded.encode("<9> <10> <17>").shape == (20 if name == "clip" else 32,)
        assert loaded.reads_images
        vectors = loaded.encode(given)
        assert np.abs(vectors - [one["vector"] for one in expected.values()]).max() <= 2e-5
        found = loaded.classify(given, **options)
        for one, right in zip(found, expected.values(), strict=True):
            assert [label["label"] for label in one] == [label["label"] for label in right["labels"]]
            assert max(abs(a["score"] - b["score"]) for a, b in zip(one, right["labels"], strict=True)) <= 2e-5
        assert [loaded.classify(image, **options) for image in given] == found
        assert loaded.classify(given, **options | {"top_k": 1}) == [one[0] for one in found]
        about = loaded.encode([f"<9> <10> {label}" for label in labels])
        assert loaded.similarity(about, vectors).argmax(axis=0).tolist() == [
            labels.index(one[0]["label"]) for one in found]
    tower = vars(loaded)["_image_engine"]
    loaded.close()
    with pytest.raises(EngineError, match="is closed"):
        tower.encode(given)


def test_calls_that_are_refused(images, tmp_path, refusals, caplog):
    loaded, picture = Engine.load(IMAGES / "clip"), images["rgb.png"]
    loaded.save(tmp_path / "texts.npz")
    assert "the file gets the encoder of texts; engine convert --task image" in caplog.text
    texts, vit = Engine.load(tmp_path / "texts.npz"), Engine.load(IMAGES / "vit")
    refusals(lambda call: call(), [
        (lambda: texts.encode(picture),), (lambda: loaded.encode([picture, "a text"]),),
        (lambda: loaded.encode(["a text", picture]),), (lambda: loaded.classify(picture),),
        (lambda: loaded.classify(picture, candidate_labels=["a", "a"]),),
        (lambda: loaded.classify(picture, candidate_labels=[]),),
        (lambda: loaded.classify(picture, candidate_labels=["a"], hypothesis_template="a"),),
        (lambda: loaded.classify(picture, candidate_labels=["a", "b"], multi_label=True),),
        (lambda: vit.classify(picture, candidate_labels=["a", "b"]),),
    ])
    with pytest.raises(UnsupportedError, match="the model has no adapters, so that task='image' has no effect"):
        Engine.load(IMAGES / "vit", task="image")


def test_a_folder_of_both_is_converted_to_a_file_of_its_images(images, tmp_path):
    assert main(["convert", str(IMAGES / "clip"), str(tmp_path / "images.npz"), "--task", "image"]) == 0
    (tmp_path / "a.png").write_bytes(images["rgb.png"])
    assert main(["encode", str(tmp_path / "images.npz"), str(tmp_path / "a.png"), "-o", str(tmp_path / "v.npy")]) == 0
    expected = Engine.load(IMAGES / "clip", task="image").encode([tmp_path / "a.png"])
    assert np.array_equal(np.load(tmp_path / "v.npy"), expected)


def test_a_sentence_transformers_folder_of_clip(images, tmp_path):
    shutil.copytree(IMAGES / "clip", tmp_path / "0_CLIPModel")
    write_modules_json(tmp_path, ("0_CLIPModel", "sentence_transformers.models.CLIPModel"))
    loaded, plain = Engine.load(tmp_path), Engine.load(IMAGES / "clip")
    for given in (["<9> <10>"], [images["rgb.png"]]):
        assert np.array_equal(loaded.encode(given), plain.encode(given))
