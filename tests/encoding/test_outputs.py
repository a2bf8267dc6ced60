"""Test the arguments output_hidden_states, output_attentions and output_entropies of `Engine.forward`."""

from types import SimpleNamespace

import numpy as np
import pytest

from engine import ForwardOutput
from engine.base.errors import InputError, UnsupportedError

from ..tools.encoders import engine_of
from ..tools.tiny_models import D, random_model

L, H = 2, 3
IDS = np.array([[4, 5, 6, 7], [8, 9, 0, 0], [0, 0, 0, 0]])
MASK = np.array([[1, 1, 1, 1], [0, 1, 1, 0], [0, 0, 0, 0]])


@pytest.fixture(scope="module")
def engine():
    engine = engine_of(random_model(), backend="reference", threads=1)
    assert (engine.config.num_layers, engine.config.num_heads) == (L, H)
    return engine


def test_nothing_asked_for_returns_the_array(engine):
    for nothing in (None, False):
        out = engine.forward(IDS, MASK, output_hidden_states=nothing, output_attentions=nothing,
                             output_entropies=nothing)
        assert isinstance(out, np.ndarray)
        assert np.array_equal(out, engine.forward(IDS, MASK))


def test_everything_in_arrays(engine):
    out = engine.forward(IDS, MASK, output_hidden_states=True, output_attentions=True, output_entropies=True)
    assert isinstance(out, ForwardOutput)
    assert np.array_equal(out.last_hidden_state, engine.forward(IDS, MASK))
    assert sorted(out.hidden_states) == list(range(L + 1))
    assert sorted(out.attentions) == sorted(out.entropies) == [(i, h) for i in range(L) for h in range(H)]
    assert np.array_equal(out.hidden_states[L], out.last_hidden_state)
    real = MASK == 1
    for hidden in out.hidden_states.values():
        assert hidden.shape == (3, 4, D)
        assert not hidden[~real].any()
    for head, weights in out.attentions.items():
        assert weights.shape == (3, 4, 4)
        assert weights.dtype == np.float32
        assert np.abs(weights.sum(2) - MASK).max() < 1e-6
        assert not weights.swapaxes(1, 2)[~real].any(), "a padded key has a weight"
        p = np.where(weights > 0, weights, 1)
        assert np.abs(-(p * np.log(p)).sum(2) - out.entropies[head]).max() < 1e-5
        assert out.entropies[head].shape == (3, 4)


def test_lists_and_arrays_agree(engine):
    asked = {"output_hidden_states": [0, 1], "output_attentions": [(1, 0)], "output_entropies": [(0, 1)]}
    padded = engine.forward(IDS[:1], MASK[:1], **asked)
    listed = engine.forward([[8, 9], IDS[0], []], **asked)
    for name, key in (("hidden_states", 1), ("attentions", (1, 0)), ("entropies", (0, 1))):
        rows = getattr(listed, name)[key]
        assert [len(row) for row in rows] == [2, 4, 0]
        assert np.abs(rows[1] - getattr(padded, name)[key][0]).max() < 1e-6
    assert listed.attentions[1, 0][2].shape == (0, 0)


def test_a_list_with_padding(engine):
    """The lists of a tokenizer of transformers have padding, and zeros come back there."""
    out = engine.forward([[0, 8, 9], [4, 5, 6]], [[0, 1, 1], [1, 1, 1]], output_attentions=[(0, 0)])
    weights = out.attentions[0, 0][0]
    assert weights.shape == (3, 3)
    assert not weights[0].any()
    assert not weights[:, 0].any()


def test_negative_numbers_count_from_the_end_and_stay_the_keys(engine):
    out = engine.forward(IDS, output_hidden_states=[-1, 0, -3], output_attentions=[(-1, -3)], output_entropies=[(1, 0)])
    assert list(out.hidden_states) == [-1, 0, -3]
    assert np.array_equal(out.hidden_states[-1], out.last_hidden_state)
    assert np.array_equal(out.hidden_states[-3], out.hidden_states[0])
    same = engine.forward(IDS, output_attentions=[(1, 0), (1, 0)])
    assert np.array_equal(out.attentions[-1, -3], same.attentions[1, 0])


def test_numbers_of_numpy_and_an_empty_batch(engine):
    out = engine.forward(IDS[:0], output_hidden_states=np.array([1]), output_attentions=np.array([[1, 1]]),
                         output_entropies=[])
    assert out.hidden_states[1].shape == (0, 4, D)
    assert out.attentions[1, 1].shape == (0, 4, 4)
    assert out.entropies == {}
    assert list(engine.forward(IDS, output_hidden_states=1).hidden_states) == [1]


@pytest.mark.parametrize(("asked", "told"), [
    ({"output_hidden_states": [3]}, r"layers from 0 to 2 \(or negative, from the end\); got 3"),
    ({"output_hidden_states": [True]}, "layers from 0 to 2 .* got True"),
    ({"output_hidden_states": [1.0]}, "layers from 0 to 2 .* got 1.0"),
    ({"output_hidden_states": 3}, "layers from 0 to 2 .* got 3"),
    ({"output_hidden_states": 1.0}, "output_hidden_states must be True, None or a list, not 1.0"),
    ({"output_hidden_states": "1"}, "output_hidden_states must be True, None or a list, not '1'"),
    ({"output_attentions": (1, 0)}, r"such as \[\(0, 0\)\]; 1 is no pair"),
    ({"output_attentions": [(0, 3)]}, "heads from 0 to 2 .* got 3"),
    ({"output_attentions": [(2, 0)]}, "layers from 0 to 1 and .* got 2"),
    ({"output_entropies": [(0, 0, 0)]}, r"\(0, 0, 0\) is no pair"),
    ({"output_entropies": [(-3, 0)]}, "got -3"),
], ids=str)  # fmt: skip
def test_what_cannot_be_asked_for(engine, asked, told):
    with pytest.raises(InputError, match=told):
        engine.forward(IDS, **asked)


def test_a_backend_that_gives_vectors_only(engine, monkeypatch):
    monkeypatch.setattr(engine, "_plan", SimpleNamespace(forward=None))
    with pytest.raises(UnsupportedError, match="gives no hidden states, attention weights or entropies; cython"):
        engine.forward(IDS, output_attentions=[(0, 0)])
