"""`close` frees an object of any class, and `save` writes its model with calibrations and text settings."""

import gc
import pickle
import threading
import weakref

import numpy as np
import pytest

import engine
from engine import (
    Engine,
    EngineError,
    Generator,
    InputError,
    Reranker,
    Transcriber,
    UnsupportedError,
    WeightsError,
    load_model,
    save,
)
from engine.weights.calibration import Calibration

from ..tools import head_texts as texts
from ..tools.encoders import engine_of
from ..tools.generators import language_model
from ..tools.head_models import folder_of
from ..tools.speech import model_of, sounds
from ..tools.threads import begin
from ..tools.tiny_models import random_model
from ..tools.tiny_text import tiny_text

CALLS = {
    "Engine": (lambda: engine_of(random_model(tiny_text()), threads=1), [
        lambda m: m.encode("cat"), lambda m: m.encode([]), lambda m: m.forward([[4]]), lambda m: m.tokenize("cat"),
        lambda m: m.tokenizer, lambda m: m.look("cat"), lambda m: m.similarity([1.0] * 12, [1.0] * 12),
        lambda m: [*m.encode_stream(["cat"])]]),
    "heads": (lambda: Engine.load(folder_of("bert_classify"), threads=1), [
        lambda m: m.classify("a"), lambda m: m.predict(("a", "b")), lambda m: m.to_model(), pickle.dumps]),
    "Generator": (lambda: Generator(language_model(tiny_text()), threads=1), [
        lambda m: m.generate("cat"), lambda m: m.stream("cat"), lambda m: m.score("the cat"), lambda m: m.statistics(),
        lambda m: [*m.results(["cat"])]]),
    "Reranker": (lambda: Reranker.load(folder_of("bert_pairs"), threads=1), [
        lambda m: m.rank("a", ["b"]), lambda m: m.predict(("a", "b")), lambda m: m.tokenizer]),
    "Transcriber": (lambda: Transcriber(model_of(), backend="reference"), [lambda m: m.transcribe(sounds(1))]),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_closed_object_says_so(name):
    make, calls = CALLS[name]
    with make() as model:
        held = [weakref.ref(value) for key, value in vars(model).items() if key in ("_plan", "_model", "_engine")]
        assert held
        if name != "heads":
            calls[0](model)
    gc.collect()
    assert [one() for one in held] == [None] * len(held)
    model.close()
    for call in [*calls, lambda m: m.__enter__()]:
        with pytest.raises(EngineError, match=f"this {type(model).__name__} is closed; load the model again"):
            call(model)
    assert repr(model).endswith(", closed>")
    assert model.config.hidden_size


def test_objects_that_share_the_weights_stay_open():
    one = engine_of(random_model(tiny_text()), threads=1)
    other, expected = one.with_text(max_seq_length=5), one.encode("cat")
    one.close()
    np.testing.assert_array_equal(other.encode("cat"), expected)
    generator = Generator(language_model(tiny_text()), threads=1)
    pieces = generator.stream("the cat")
    first = next(pieces)
    generator.close()
    assert [first.id, *(piece.id for piece in pieces)] == Generator(language_model(tiny_text())).generate("the cat").ids


def test_a_close_while_other_threads_compute():
    for _ in range(5):
        one, ends, begun = engine_of(random_model(tiny_text()), threads=2), [], threading.Barrier(5)
        expected = one.encode(["the cat sat"] * 50)

        def work(one=one, ends=ends, begun=begun, expected=expected):
            begun.wait()
            try:
                while True:
                    ends.append(np.array_equal(one.encode(["the cat sat"] * 50), expected))
            except EngineError as error:
                ends.append("is closed" in str(error))

        calls = [begin(work) for _ in range(4)]
        begun.wait()
        one.close()
        for call in calls:
            call.result()
        assert len(ends) >= 4
        assert all(ends)


def test_save_keeps_calibrations_and_text_settings(tmp_path):
    scores = {name: np.float32([0.1, 0.2, 0.7]) for name in ("lac", "aps", "confidences")}
    calibration = Calibration("classify", {"temperature": np.float32([2.5]), "classes": np.uint16([0, 1, 2]), **scores})
    one = Engine.load(folder_of("bert_classify"), threads=1).with_calibration(calibration)
    one = one.with_text(max_seq_length=20, prompts={"query": "a "})
    one.save(tmp_path / "a.npz")
    engine.save(one, tmp_path / "b.npz")
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    again = Engine.load(tmp_path / "a.npz", threads=1)
    assert again.calibrations["classify"].temperature == 2.5
    assert (again.max_seq_length, again.prompts) == (20, {"query": "a "})
    assert again.classify(texts.TEXTS, truncation=True) == one.classify(texts.TEXTS, truncation=True)
    again.save(tmp_path / "a.npz")          # onto the file that is mapped
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    assert again.classify(texts.TEXTS, truncation=True) == one.classify(texts.TEXTS, truncation=True)


def test_save_of_the_other_classes(tmp_path):
    save(language_model(tiny_text()), tmp_path / "a.npz")
    calibration = Calibration("score", {"temperature": np.float32([1.5])})
    generator = Generator.load(tmp_path / "a.npz", threads=1).with_calibration(calibration)
    generator.save(tmp_path / "b.npz")
    again = Generator.load(tmp_path / "b.npz", threads=1)
    assert again.score("the cat").total == generator.score("the cat").total
    reranker = Reranker.load(folder_of("bert_pairs"), threads=1)
    reranker.save(tmp_path / "c.npz")
    assert Reranker.load(tmp_path / "c.npz").predict(("a", "b")) == reranker.predict(("a", "b"))


def test_what_cannot_be_saved(tmp_path):
    with pytest.raises(UnsupportedError, match=r"this Engine was made from a model in memory.*save that model"):
        engine_of(random_model(tiny_text())).save(tmp_path / "a.npz")
    with pytest.raises(InputError, match="save takes a Model or an engine, and then the path"):
        save("a.npz", load_model(folder_of("bert_tag")))
    with pytest.raises(WeightsError, match="cannot be written: no such folder"):
        Engine.load(folder_of("bert_tag"), threads=1).save(tmp_path / "none" / "a.npz")
