"""The image encoders of CLIP and SigLIP give the embeddings that transformers computes in float64."""

import io
import json
import pickle
import shutil
import warnings
from collections import deque
from pathlib import Path

import numpy as np
import pytest

from engine import (
    Engine,
    EngineError,
    InputError,
    Model,
    UnsupportedError,
    WeightsError,
    convert_model,
    load_model,
    save,
)
from engine.base.errors import TimedOut
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
@pytest.mark.parametrize("name", ["clip", "siglip"])
def test_an_image_alone_has_the_bits_that_it_has_in_company(name, precision, backend, images):
    given = [images[name] for name in ("rgb.png", "cmyk.jpg", "small.png", "turned_5.jpg", "one.png")]
    found = []
    for threads in (1, 2, 3, 4):
        loaded = Engine.load(IMAGES / name, backend=backend, precision=precision, threads=threads, task="image")
        found.append(loaded.encode(given))
        assert np.array_equal(loaded.encode(given[::-1], batch_size=2)[::-1], found[0])
        assert all(np.array_equal(loaded.encode(image), row) for image, row in zip(given, found[0], strict=True))
    assert all(np.array_equal(vectors, found[0]) for vectors in found)


@pytest.mark.parametrize("name", ["clip", "siglip"])
def test_one_engine_has_both_encoders(name, images):
    expected = json.loads((IMAGES / name / "expected.json").read_text(encoding="utf-8"))
    given, labels = [images[name] for name in expected], ["<17>", "<33>", "<64>", "<101>"]
    options = {"candidate_labels": labels, "hypothesis_template": "<9> <10> {}", "top_k": None}
    for loaded in (Engine.load(IMAGES / name), pickle.loads(pickle.dumps(Engine.load(IMAGES / name)))):
        assert "encoder" not in vars(loaded._image_side)        # until an image comes
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
    loaded.close()
    with pytest.raises(EngineError, match="is closed"):
        loaded.encode(given)


@pytest.mark.parametrize("precision", [None, "int8"])
@pytest.mark.parametrize("name", ["clip", "siglip"])
def test_a_file_holds_both_encoders(name, precision, images, tmp_path, caplog):
    """Saved from an engine and by `engine convert`, with the settings of images, the scale and the bias."""
    saved, converted = tmp_path / "saved.npz", tmp_path / "converted.npz"
    loaded = Engine.load(IMAGES / name, precision=precision)
    loaded.save(saved)
    options = [] if precision is None else ["--precision", precision]
    assert main(["convert", str(IMAGES / name), str(converted), *options]) == 0
    assert not caplog.records
    given, labels = [images["rgb.png"], images["cmyk.jpg"], images["long.png"]], ["<17>", "<33>", "<64>"]
    options = {"candidate_labels": labels, "hypothesis_template": "<9> {}", "top_k": None}

    def results(engine):
        return [engine.encode(["<9> <10>", "<17>"]).tolist(), engine.encode(given).tolist(),
                engine.classify(given, **options)]

    narrow = convert_model(load_model(IMAGES / name), precision or "float32")
    for path, expected in ((saved, results(loaded)), (converted, results(Engine(narrow)))):
        engine = Engine.load(path, precision=precision)
        assert engine.reads_images
        assert results(engine) == expected
        assert results(pickle.loads(pickle.dumps(engine))) == expected
        alone = Engine.load(path, precision=precision, task="image")
        assert alone.text is None
        assert alone.encode(given).tolist() == expected[1]
    model = load_model(saved)
    assert model.images.images == load_model(IMAGES / name, task="image").encoder.images
    save(model, tmp_path / "again.npz")
    assert (tmp_path / "again.npz").read_bytes() == saved.read_bytes()
    loaded.with_text(max_seq_length=5).save(saved)
    assert Engine.load(saved).max_seq_length == 5
    assert np.array_equal(Engine.load(saved, precision=precision).encode(given), loaded.encode(given))


def test_a_packed_file_holds_both_encoders(images, tmp_path):
    assert main(["convert", str(IMAGES / "clip"), str(tmp_path / "packed.npz"), "--packed"]) == 0
    packed, plain = (Engine.load(path, backend="cython") for path in (tmp_path / "packed.npz", IMAGES / "clip"))
    for given in (["<9> <10>"], [images["rgb.png"]]):
        assert np.array_equal(packed.encode(given), plain.encode(given))


def test_images_of_a_model_that_reads_texts_come_in_any_collection(images, tmp_path):
    loaded = Engine.load(IMAGES / "clip")
    paths = [tmp_path / f"{name}.png" for name in "abc"]
    for path, name in zip(paths, ("rgb.png", "small.png", "grey.png"), strict=True):
        path.write_bytes(images[name])
    expected = loaded.encode(paths)
    for given in (tuple(paths), iter(paths), (path for path in paths), dict.fromkeys(paths).keys(),
                  np.array(paths, object), deque(paths)):
        assert np.array_equal(loaded.encode(given), expected)
    assert np.array_equal(loaded.encode(iter(["<9>", "<17>"])), loaded.encode(["<9>", "<17>"]))
    assert np.array_equal(loaded.encode_document(paths), expected)
    vit = Engine.load(IMAGES / "vit")
    assert np.array_equal(vit.encode_query(paths), vit.encode(map(str, paths)))


def test_the_name_of_a_picture_as_a_text_gives_a_warning(images, tmp_path, monkeypatch):
    loaded = Engine.load(IMAGES / "clip")
    monkeypatch.chdir(tmp_path)
    Path("a cat.png").write_bytes(images["rgb.png"])
    for given in ("cat.jpg", ["<9>", "a cat.png"], "https://example.org/cat.JPG"):
        with pytest.warns(UserWarning, match=r"is read as a text, because .* give its path as a pathlib\.Path"):
            loaded.encode(given)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loaded.encode(["a dog.png", "a cat", "jpg"])


def test_several_labels_of_an_image_may_be_right_where_the_model_says_so(images):
    loaded, options = Engine.load(IMAGES / "siglip"), {"candidate_labels": ["<17>", "<33>"], "top_k": None}
    scores = loaded.classify(images["rgb.png"], multi_label=True, **options)
    assert scores == loaded.classify(images["rgb.png"], **options)
    assert loaded.classify(images["rgb.png"], candidate_labels=["<33>"]) in scores      # whatever the other labels are


def test_the_vectors_of_labels_end_with_the_timeout_of_the_call(images, monkeypatch):
    loaded = Engine.load(IMAGES / "clip")
    tokens = loaded.text_encoder.tokens

    def late(sentences, stop):
        found = tokens(sentences, stop=stop)
        stop.deadline = 1e-9        # the time is over when the images and the tokens of the labels are there
        return found

    monkeypatch.setattr(loaded.text_encoder, "tokens", late)
    with pytest.raises(TimedOut):
        loaded.classify(images["rgb.png"], candidate_labels=["<17>"], timeout=100.0)


def test_texts_run_where_the_encoder_of_images_does_not(images, tmp_path, caplog):
    shutil.copytree(IMAGES / "clip", tmp_path / "clip")
    (tmp_path / "clip" / "preprocessor_config.json").write_text('{"do_pad": true}', encoding="utf-8")
    loaded = Engine.load(tmp_path / "clip")
    assert "do_pad and use_square_size are not supported" in caplog.text
    assert "its encoder of images is left out" in caplog.text
    assert not loaded.reads_images
    assert np.array_equal(loaded.encode("<9>"), Engine.load(IMAGES / "clip").encode("<9>"))
    with pytest.raises(UnsupportedError, match="do_pad and use_square_size"):
        Engine.load(tmp_path / "clip", task="image")


def test_encoders_that_are_no_pair_are_refused():
    both = load_model(IMAGES / "clip")
    for wrong in (Model(images=both.images), Model(encoder=both.images, images=both.images),
                  Model(encoder=both.encoder, images=both.encoder)):
        with pytest.raises(WeightsError, match="images must be an encoder of images beside one encoder of texts"):
            wrong.checked()


def test_calls_that_are_refused(images, tmp_path, refusals):
    loaded, picture = Engine.load(IMAGES / "clip"), images["rgb.png"]
    save(Model(encoder=loaded.to_model().encoder), tmp_path / "texts.npz")
    texts, vit = Engine.load(tmp_path / "texts.npz"), Engine.load(IMAGES / "vit")
    refusals(lambda call: call(), [
        (lambda: texts.encode(picture),), (lambda: loaded.encode([picture, "a text"]),),
        (lambda: loaded.encode(["a text", picture]),), (lambda: loaded.classify(picture),),
        (lambda: loaded.classify("cat.jpg", candidate_labels=["a"]),), (lambda: loaded.encode(io.BytesIO(picture)),),
        (lambda: loaded.encode([io.BytesIO(picture)]),), (lambda: loaded.encode(np.zeros((9, 9, 3))),),
        (lambda: loaded.encode(np.zeros((2, 9, 9, 3))),), (lambda: loaded.encode({Path("a.png")}),),
        (lambda: loaded.classify(picture, candidate_labels=["a", "a"]),),
        (lambda: loaded.classify(picture, candidate_labels=[]),),
        (lambda: loaded.classify(picture, candidate_labels=["a"], hypothesis_template="a"),),
        (lambda: loaded.classify(picture, candidate_labels=["a", "b"], multi_label=True),),
        (lambda: vit.classify(picture, candidate_labels=["a", "b"]),),
    ])
    with pytest.raises(UnsupportedError, match="the model has no adapters, so that task='image' has no effect"):
        Engine.load(IMAGES / "vit", task="image")
    with pytest.raises(InputError, match="task='image' chooses an adapter of a folder, and a file has none"):
        Engine.load(tmp_path / "texts.npz", task="image")


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
