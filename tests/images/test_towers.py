"""The image encoders of CLIP give the embeddings that transformers computes in float64."""

import json

import numpy as np
import pytest

from engine import Engine, UnsupportedError
from engine.cli.main import main

from ..tools.paths import IMAGES
from ..tools.running import COMPILED, RUNNING

pytest.importorskip("PIL")

from ..tools.image_files import make_images

TOWERS = {"clip": {"task": "image"}, "clip_projected": {}}


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


def test_a_folder_of_both_says_how_its_images_are_read(caplog, tmp_path):
    text = Engine.load(IMAGES / "clip")
    assert "task='image' of Engine.load reads these, and not the texts" in caplog.text
    with pytest.raises(UnsupportedError, match="this model reads texts and no images"):
        text.encode([IMAGES / "none.png"])
    with pytest.raises(UnsupportedError, match="has no adapters"):
        Engine.load(IMAGES / "vit", task="image")


def test_a_folder_of_both_is_converted_to_a_file_of_its_images(images, tmp_path):
    assert main(["convert", str(IMAGES / "clip"), str(tmp_path / "images.npz"), "--task", "image"]) == 0
    (tmp_path / "a.png").write_bytes(images["rgb.png"])
    assert main(["encode", str(tmp_path / "images.npz"), str(tmp_path / "a.png"), "-o", str(tmp_path / "v.npy")]) == 0
    expected = Engine.load(IMAGES / "clip", task="image").encode([tmp_path / "a.png"])
    assert np.array_equal(np.load(tmp_path / "v.npy"), expected)
