"""Labels of the caller: the scores of transformers' pipeline, their bits in any company, and what is refused.

tests/golden/make/zero_shot.py wrote what is expected.
"""

from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial

import numpy as np
import pytest

from engine import Engine, InputError, UnsupportedError, load_model
from engine.base.errors import TextTooLong
from engine.heads.zero_shot import entailment_of
from engine.methods.classify import CLASSIFY, ClassifyOptions
from engine.weights.calibration import Calibration

from ..tools import head_texts as texts
from ..tools.head_models import folder_of
from ..tools.paths import IMAGES
from ..tools.zero_shot import CALLS, TEXTS, golden, models, nli_folder

pytest.importorskip("tokenizers")

ALLOWED = 2e-5
LABELS = ["good", "awful rain", "Berlin"]


@cache
def load(name="deberta_classify", **options):
    return Engine.load(nli_folder(name), threads=1, **options)


@pytest.mark.parametrize("name", models())
def test_scores_are_those_of_the_pipeline(name, one_backend):
    engine = load(name, backend=one_backend)
    for call, options in CALLS.items():
        found = engine.classify(TEXTS, top_k=None, truncation=True, **options)
        for own, expected in zip(found, golden()[name][call], strict=True):
            scores = {one["label"]: one["score"] for one in own}
            assert scores.keys() == dict(expected).keys()
            assert all(abs(scores[label] - score) <= ALLOWED for label, score in expected)
            assert [*scores.values()] == sorted(scores.values(), reverse=True)
        assert engine.classify(TEXTS[0], truncation=True, **options) == found[0][0]
        assert engine.classify(TEXTS, top_k=2, truncation=True, **options) == [own[:2] for own in found]


def test_the_scores_of_the_golden_models_differ():
    """A model that is sure of nothing proves nothing."""
    for name, calls in golden().items():
        spread = [np.ptp([score for own in rows for _, score in own]) for rows in calls.values()]
        assert max(spread) > 0.03, name
    assert any(own[0][0] != "good" for calls in golden().values() for own in calls["three"])


@pytest.mark.parametrize("name", ["deberta_classify", "bart_classify"])
@pytest.mark.parametrize("options", [{}, {"precision": "int8"}], ids=str)
def test_in_any_company(name, options, compiled_backend, check_company):
    check_company(partial(Engine.load, nli_folder(name), backend=compiled_backend, **options),
                  lambda engine, inputs: engine.classify(inputs, top_k=None, candidate_labels=LABELS, truncation=True),
                  [*texts.TEXTS[:12], texts.TEXTS[37]])


def test_many_threads_get_the_bits_of_one():
    engine, calls = load(), [(text, LABELS[: 1 + i % 3]) for i, text in enumerate(texts.TEXTS[:24])]

    def ask(call):
        return engine.classify(call[0], candidate_labels=call[1], top_k=None)

    with ThreadPoolExecutor(8) as pool:
        assert [*pool.map(ask, calls)] == [*map(ask, calls)]


def test_a_label_of_several_has_the_score_that_it_has_alone():
    each = load().classify(TEXTS[0], candidate_labels=LABELS, multi_label=True, top_k=None)
    alone = [load().classify(TEXTS[0], candidate_labels=[one["label"]]) for one in each]
    assert each == alone


@pytest.mark.parametrize(("labels", "found"), [
    (("contradiction", "neutral", "entailment"), (0, 2)), (("ENTAILMENT", "NEUTRAL", "CONTRADICTION"), (2, 0)),
    (("contradiction", "Entail", "neutral"), (0, 1)), (("entailments", "not_entailment", "x"), (2, 0))])
def test_the_label_of_an_entailment(labels, found):
    assert entailment_of(Engine.load(nli_folder("bert_classify", labels)).runner_of("classify")) == found


def test_a_text_is_tokenized_once(monkeypatch):
    engine, read = load(), []
    tokenizer = engine.text_encoder.tokenizer
    encodings = type(tokenizer)._encodings
    monkeypatch.setattr(type(tokenizer), "_encodings", lambda self, given, *args, **options: read.extend(given) or (
        encodings(self, given, *args, **options)))
    engine.classify(["the cat", "a mat"], candidate_labels=LABELS)
    assert sorted(read) == sorted(["the cat", "a mat", *(f"This example is {label}." for label in LABELS)])


def test_the_text_alone_is_cut():
    """The hypothesis stays whole, however long it is, and a cut is told by the text."""
    engine = load("roberta_classify")
    long = " ".join(["very lovely"] * 12)
    with pytest.warns(UserWarning, match="1 of 2 texts was cut to 96 tokens; the longest has"):
        cut, _ = engine.classify([texts.LONG, "a"], candidate_labels=[long, "b"], top_k=None)
    start = engine.classify(texts.LONG[:600], candidate_labels=[long, "b"], top_k=None, truncation=True)
    assert cut == start
    with pytest.raises(TextTooLong, match="is longer than the 96 that the model reads"):
        engine.classify([texts.LONG], candidate_labels=["b"], truncation=False)


@pytest.mark.parametrize(("options", "message"), [
    ({"candidate_labels": []}, r"candidate_labels must have one label or more, such as \['sports', 'politics'\], not"),
    ({"candidate_labels": " , "}, "candidate_labels must have one label or more"),
    ({"candidate_labels": ["a", "b", "a"]}, "candidate_labels must have each label once, and 'a' is there twice"),
    ({"candidate_labels": "a, b, a"}, "must have each label once"),
    ({"candidate_labels": ["a", " "]}, "candidate_labels must have no empty label, and number 1 is ' '"),
    ({"candidate_labels": ["a", 3]}, "candidate_label 1 must be a string, not int 3"),
    ({"candidate_labels": {"a", "b"}}, "candidate_labels must be a string or a list of strings, not set, whose order"),
    ({"candidate_labels": 3}, "candidate_labels must be a string or a list of strings, not int 3"),
    ({"candidate_labels": ["a"], "hypothesis_template": "it is"}, "hypothesis_template must have {} once, where a "
     "label is put, and no other braces, such as 'This example is {}.', not 'it is'"),
    ({"candidate_labels": ["a"], "hypothesis_template": "{} or {}"}, "hypothesis_template must have {} once"),
    ({"candidate_labels": ["a"], "hypothesis_template": "{0.__class__} {}"}, "no other braces"),
    ({"candidate_labels": ["a"], "hypothesis_template": 3}, "hypothesis_template must be a text, not int 3"),
    ({"candidate_labels": ["a"], "multi_label": "no"}, "multi_label must be True or False, not 'no'"),
    ({"candidate_labels": ["a"], "coverage": 0.9}, "leave coverage and function_to_apply out"),
    ({"candidate_labels": ["a"], "function_to_apply": "none"}, "leave coverage and function_to_apply out"),
    ({"hypothesis_template": "it is {}"}, "are about labels of your own; give candidate_labels"),
    ({"multi_label": True}, "are about labels of your own; give candidate_labels"),
    ({"candidate_labels": ["b", "cat " * 96]}, "the hypotheses of candidate_labels: 'This example is cat cat .* has at "
     "least 96 tokens, and the model reads 92 of two texts together, so that no room is left beside it; shorten it"),
])
def test_wrong_options(options, message):
    with pytest.raises(InputError, match=message):
        load().classify([], **options)


@pytest.mark.parametrize(("given", "message"), [
    (np.zeros((4, 4, 3), np.uint8), "text 0 must be a string, not ndarray"),
    ([("a", "b")], "text 0 must be a string, not tuple"),
    ([b"\x89PNG"], "text 0 must be a string, not bytes"), (nli_folder, "texts must be a string or a list of strings"),
    ({"text": "a", "text_pair": "b"}, r"a pair of texts is a tuple in the list: \[\(text, text_pair\)\]"),
    (["a", None], "text 1 must be a string, not NoneType None"),
])
def test_an_image_or_a_pair_is_no_text(given, message):
    with pytest.raises((InputError, UnsupportedError), match=message):
        load().classify(given, candidate_labels=LABELS)


@pytest.mark.parametrize(("name", "message"), [
    ("bert_classify", "the label 'entailment' beside others, and this one has dull, lively, neither; without them, "),
    ("bert_one", "and this one has good; without them"), ("bert_tag", "no head to classify"),
])
def test_other_models_say_why_not(name, message):
    with pytest.raises(UnsupportedError, match=message):
        Engine.load(folder_of(name), threads=1).classify([], candidate_labels=LABELS)


def test_a_model_of_images_has_its_own_labels_alone():
    with pytest.raises(UnsupportedError, match="labels of images need a model that compares images with texts"):
        Engine.load(IMAGES / "vit", threads=1).classify([], candidate_labels=LABELS)


def test_a_calibration_does_not_apply():
    model = load_model(nli_folder("bert_classify"))
    arrays = {"temperature": np.array([3], np.float32), "bias": np.array([1, -1, 0], np.float32),
              **{name: np.full(9, 0.5, np.float32) for name in ("lac", "aps", "confidences")},
              "classes": np.zeros(9, np.uint16)}
    calibrated = Engine(model.with_calibration(Calibration("classify", arrays)), threads=1)
    found, plain = (engine.classify(TEXTS[0], candidate_labels=LABELS, top_k=None)
                    for engine in (calibrated, load("bert_classify")))
    assert "margin" in calibrated.classify(TEXTS[0])
    assert found == [one | {"calibrated": False} for one in plain]


def test_pairs_without_tokens_have_no_logits():
    options = ClassifyOptions(candidate_labels=LABELS, top_k=None)
    workload = CLASSIFY.prepare(load(), ["a"], options)
    workload.end(workload.slice(range(1)))
    assert [one["score"] for one in workload.result()[0]] == pytest.approx([1 / 3] * 3)


def test_a_stream_of_labels():
    options = {"candidate_labels": "good, dull", "multi_label": True}
    rows = [one for part in load().encode_stream(iter(TEXTS), rows=4, result="classes", truncation=True, **options)
            for one in part]
    assert rows == load().classify(TEXTS, truncation=True, **options)
