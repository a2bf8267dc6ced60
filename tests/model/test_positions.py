"""The frequencies of rotary embeddings, and the options of a config that decide them."""

import numpy as np
import pytest

from engine.base.errors import WeightsError
from engine.model.attention import AttentionKind
from engine.model.config import ModelConfig
from engine.model.positions import rotary_angles, static_ntk


def test_a_scale_divides_positions():
    exact = rotary_angles(np.arange(9) / 4, 500.0, 6, np.float64)
    assert np.array_equal(rotary_angles(np.arange(9), 500.0, 6, np.float64, 4.0), exact)


@pytest.mark.parametrize(("theta", "factor", "width"), [(10000.0, 8.0, 64), (20000.0, 2.0, 22), (160000.0, 1.0, 6)])
def test_static_ntk(theta, factor, width):
    base, scale = static_ntk(theta, factor, width)
    position = np.array([1e-3])  # angles below pi, so that they can be read back from their sines
    frequencies = np.arcsin(rotary_angles(position, base, width, np.float64, scale)[1][0]) / position
    expected = [(theta * factor) ** (-2 * i / width) / factor ** (2 / width) for i in range(width // 2)]
    assert np.allclose(frequencies, expected, rtol=1e-9)
    assert np.isclose(frequencies[-1], theta ** (2 / width - 1) / factor, rtol=1e-9)


def config(*kinds):
    return ModelConfig("random", 8, 2, 2, 4, 8, max_positions=9, position_table=False, attention_kinds=kinds)


@pytest.mark.parametrize(("kind", "written"), [
    (AttentionKind(), {}),
    (AttentionKind(3, 1e4), {"window": 3, "rotary_theta": 1e4}),
    (AttentionKind(None, 500.0, 2.5), {"rotary_theta": 500.0, "rotary_scale": 2.5}),
    (AttentionKind(None, 500.0, rotary_interleaved=True), {"rotary_theta": 500.0, "rotary_interleaved": True}),
    (AttentionKind(causal=True), {"causal": True}),
])
def test_only_options_without_their_default_are_written(kind, written):
    values = config(kind, AttentionKind(1)).to_json()
    assert values["attention_kinds"] == (written, {"window": 1})
    assert ModelConfig.from_json(values) == config(kind, AttentionKind(1))


@pytest.mark.parametrize("options", [{"rotary_scale": 0.0}, {"rotary_scale": 1}, {"rotary_scale": float("inf")},
                                     {"rotary_interleaved": 1}, {"causal": None}], ids=str)  # fmt: skip
def test_impossible_options_are_refused_by_name(options):
    with pytest.raises(WeightsError, match="|".join(options)):
        config(AttentionKind(None, 1e4, **options))
