"""`Engine.look`: entropies, shares and rollout of a text, the same for any number of threads, and their pictures."""

import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from engine import Engine, InputError, TimedOut, UnsupportedError, plot
from engine.uncertainty.measures import Bin

from ..tools.head_models import folder_of

pytest.importorskip("tokenizers")

TEXT = "Anna lives in Berlin & works, unbelievably, for Bilal."


def load(name="bert_classify", **options):
    return Engine.load(folder_of(name), **{"threads": 1} | options)


def test_look():
    engine = load()
    look, c = engine.look(TEXT), engine.config
    T = len(look.tokens)
    assert look.tokens[0] == "[CLS]"
    assert look.tokens[-1] == "[SEP]"
    ids = engine.tokenizer.encode(TEXT)
    out = engine.forward([np.array(ids)], output_attentions=True, output_entropies=True)
    rolled = np.eye(T)
    for layer in range(c.num_layers):
        weights = np.stack([out.attentions[layer, head][0] for head in range(c.num_heads)]).astype(np.float64)
        for head in range(c.num_heads):
            np.testing.assert_array_equal(look.entropies[layer, head], out.entropies[layer, head][0])
            expected = -(weights[head] * np.log(weights[head])).sum(axis=1) / np.log(T)
            np.testing.assert_allclose(look.shares[layer, head], expected, atol=1e-5)
        rolled = (weights.mean(axis=0) + np.eye(T)) / 2 @ rolled
    np.testing.assert_allclose(look.rollout, rolled, atol=1e-5)
    np.testing.assert_allclose(look.head_shares, look.shares.mean(axis=2))
    for threads in (2, 3):
        assert load(threads=threads).look(TEXT).rollout.tobytes() == look.rollout.tobytes()


def test_windows_have_smaller_limits():
    engine = load("modernbert_classify")
    look = engine.look(" ".join([TEXT] * 3))
    assert look.limits.max() == pytest.approx(np.log(len(look.tokens)), rel=1e-6)
    assert look.limits.min() < look.limits.max() - 0.1
    assert look.shares.max() <= 1


def test_pairs_and_other_models():
    assert load("bert_pairs").look(("Who?", TEXT)).rollout.shape[0] > 10
    assert load("roberta_classify").look(TEXT).tokens[0] == "<s>"


def test_refusals():
    with pytest.raises(InputError, match="must be a string, or a pair"):
        load().look(3)
    with pytest.raises(TimedOut):
        load().look(TEXT * 20, timeout=1e-9)


def test_pictures():
    look = load().look(TEXT)
    for picture in (look.heads_picture(title="a < b"), look.rollout_picture()):
        ElementTree.fromstring(picture)
    assert "layer 0 head 1" in look.heads_picture()
    assert "[CLS] reads" in look.rollout_picture()
    with pytest.raises(InputError, match="shares must be numbers"):
        plot.heads(np.ones(3))


def test_reliability():
    bins = [Bin(0.4, 0.3, 20), Bin(0.9, 0.95, 20)]
    picture = plot.reliability(bins, [Bin(0.35, 0.3, 40)], title="t")
    assert ">40 texts,<" in picture
    assert ">40 a point<" in picture
    ElementTree.fromstring(picture)
    assert "before, 20 texts: confidence 0.900, accuracy 0.950" in picture
    assert "after, 40 texts" in picture
    for wrong in ([], None, [3], "bins"):
        with pytest.raises(InputError, match="before must be the measures"):
            plot.reliability(wrong)


def test_figures():
    pytest.importorskip("matplotlib")
    look = load().look(TEXT)
    assert look.heads_picture(as_figure=True).axes
    assert plot.reliability([Bin(0.4, 0.3, 20)], as_figure=True).axes[0].get_xlabel() == "confidence"


def test_a_backend_without_weights(monkeypatch):
    engine = load()
    monkeypatch.setattr("engine.interface.vector_methods.ObservingPlan", int)
    with pytest.raises(UnsupportedError, match="gives no hidden states"):
        engine.look(TEXT)
