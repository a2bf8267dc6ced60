"""Compare each head of each family with transformers and sentence-transformers: the same labels, spans and order.

tests/golden/make/heads.py trained the models and wrote what is expected, heads_answers.py the answers.
"""

from functools import cache

import numpy as np
import pytest

from engine import Engine

from ..tools import head_texts as texts
from ..tools.head_models import expected_of, folder_of, names_of

pytest.importorskip("tokenizers")

ALLOWED = 1e-4


@cache
def engine_of(name, backend):
    return Engine.load(folder_of(name), backend=backend)


def assert_same(found, expected):
    """Compare results: texts and integers are equal, and floats differ by `ALLOWED` at most."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for key, value in expected.items():
            assert_same(found[key], value)
    elif isinstance(expected, list):
        assert len(found) == len(expected), (found, expected)
        for one, other in zip(found, expected, strict=True):
            assert_same(one, other)
    elif isinstance(expected, float):
        assert abs(found - expected) <= ALLOWED
    else:
        assert found == expected


@pytest.mark.parametrize("name", names_of("classify"))
def test_classes(name, one_backend):
    engine, expected = engine_of(name, one_backend), expected_of(name)
    logits = engine.predict([(text, "") for text in texts.TEXTS[:0]], logits=True)
    assert logits.shape == ((0,) if len(engine.heads["classify"].labels) == 1 else (0, 3))
    assert_same(engine.classify(texts.TEXTS), expected["best"])
    assert_same(engine.classify(texts.TEXTS, top_k=None), expected["all"])
    found = engine.classify(texts.TEXTS, top_k=None, function_to_apply="none")
    of_label = [{one["label"]: one["score"] for one in own} for own in found]
    labels = engine.heads["classify"].labels
    assert_same([[own[label] for label in labels] for own in of_label], expected["logits"])
    assert engine.classify(texts.TEXTS[0]) == engine.classify(texts.TEXTS[:1])[0]


@pytest.mark.parametrize("name", names_of("classify", pairs=True))
def test_pairs(name, one_backend):
    engine, expected = engine_of(name, one_backend), expected_of(name)
    assert_same(engine.predict(texts.PAIRS).tolist(), expected["scores"])
    assert_same(engine.predict(texts.PAIRS, apply_softmax=True).tolist(), expected["softmax"])
    assert_same(engine.predict(texts.PAIRS, logits=True).tolist(), expected["logits"])
    assert_same(engine.predict(texts.PAIRS, activation_fn="identity").tolist(), expected["logits"])
    if "rank" in expected:
        found = engine.rank(texts.PAIRS[0][0], [second for _, second in texts.PAIRS])
        assert_same(found, expected["rank"])
        best = engine.rank(texts.PAIRS[0][0], [second for _, second in texts.PAIRS], top_k=2, return_documents=True)
        assert best == [one | {"text": texts.PAIRS[one["corpus_id"]][1]} for one in found[:2]]


@pytest.mark.parametrize("name", names_of("tag"))
@pytest.mark.parametrize("strategy", ["none", "simple", "first", "average", "max"])
def test_tags(name, strategy, one_backend):
    found = engine_of(name, one_backend).tag(texts.TEXTS[:-2], aggregation_strategy=strategy)
    assert_same(found, expected_of(name)[strategy])


@pytest.mark.parametrize("name", names_of("tag"))
def test_tags_of_windows_and_words(name, one_backend):
    engine, expected = engine_of(name, one_backend), expected_of(name)
    assert_same(engine.tag(texts.WINDOWED, aggregation_strategy="first", stride=16), expected["stride"])
    assert_same(engine.tag(texts.TEXTS[:4], ignore_labels=[]), expected["all_labels"])
    found = engine.tag(texts.WORDS, is_split_into_words=True, aggregation_strategy="simple")
    assert_same(found, expected["words"])
    assert engine.tag(texts.WORDS[0], is_split_into_words=True, aggregation_strategy="simple") == found[0]


@pytest.mark.parametrize("name", names_of("answer"))
def test_answers(name, one_backend):
    engine, expected = engine_of(name, one_backend), expected_of(name)
    asked = [(question, text) for question, text in texts.PAIRS if question and text and len(question) < 200]
    questions, contexts = map(list, zip(*asked, strict=True))
    assert_same([[one] for one in engine.answer(questions, contexts)], expected["answers"])
    # With fewer answers than asked for, the pipeline gives "" with the score 0 in the place of the others.
    three = [[one for one in answers if one["score"] > 0] for answers in expected["three"]]
    assert_same(engine.answer(questions, contexts, top_k=3), three)
    assert_same([[one] for one in engine.answer(questions, contexts, handle_impossible_answer=True)],
                expected["impossible"])
    assert_same([[one] for one in engine.answer(questions, contexts, align_to_words=False, max_answer_len=4,
                                                max_seq_len=48, doc_stride=12)], expected["parts"])


@pytest.mark.parametrize("name", names_of("fill_mask"))
def test_words(name, one_backend):
    engine, expected = engine_of(name, one_backend), expected_of(name)
    mask = "[MASK]" if expected["tokenizer"] == "wordpiece" else "<mask>"
    masked = [text.replace("{}", mask) for text in texts.MASKED]
    assert_same(engine.fill_mask(masked), expected["words"])
    assert_same(engine.fill_mask(masked, top_k=3), expected["three"])
    assert_same(engine.fill_mask(masked, targets=["a", "e", "i"]), expected["targets"])


def test_every_backend_gives_the_same_answers(backend):
    """One model of each task, on each backend."""
    assert_same(engine_of("bert_classify", backend).classify(texts.TEXTS[:9]), expected_of("bert_classify")["best"][:9])
    assert_same(engine_of("bert_tag", backend).tag(texts.TEXTS[:9]), expected_of("bert_tag")["none"][:9])
    masked = texts.MASKED[0].replace("{}", "[MASK]")
    assert_same(engine_of("bert_fill_mask", backend).fill_mask(masked), expected_of("bert_fill_mask")["words"][0])
    question, context = texts.PAIRS[0]
    assert_same([engine_of("bert_answer", backend).answer(question, context)], expected_of("bert_answer")["answers"][0])


def test_the_labels_of_the_models_differ():
    """A model that gives one label to every text proves nothing."""
    for name in names_of("classify"):
        if "logits" in expected_of(name) and len(expected_of(name)["logits"][0]) > 1:
            assert len({own["label"] for own in expected_of(name)["best"]}) > 1, name
        assert np.ptp([own[0] for own in expected_of(name)["logits"]]) > 0.3, name
    for name in names_of("tag"):
        found = {entity["entity"] for own in expected_of(name)["none"] for entity in own}
        assert len(found) > 2 or (name, found) == ("electra_replaced", {"REPLACED"}), name
    for one, other in (("simple", "first"), ("first", "average"), ("average", "max")):
        assert any(expected_of(name)[one] != expected_of(name)[other] for name in names_of("tag"))
    for name in names_of("answer"):
        assert len({own[0]["answer"] for own in expected_of(name)["answers"]}) > 3, name
