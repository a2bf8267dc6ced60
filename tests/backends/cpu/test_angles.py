"""The table of a rotary embedding holds what passes have read, and a model of a million positions takes no memory."""

import numpy as np
import pytest

from engine.backends.cpu.angles import Angles
from engine.model.attention import AttentionKind
from engine.programs.operations import Rotary

from ...tools.encoders import engine_of
from ...tools.tiny_models import random_model

MILLION = 2**20
KINDS = (AttentionKind(rotary_theta=1e4), AttentionKind(rotary_theta=500.0, rotary_scale=4.0))


def engine(backend: str, positions: int = MILLION):
    return engine_of(random_model(max_positions=positions, attention_kinds=KINDS, num_layers=2, position_table=False),
                     threads=1, backend=backend)


@pytest.mark.parametrize("backend", ["cython", "numba"])
def test_positions_up_to_a_million_and_in_any_order(backend):
    """131,072 was the largest number of positions."""
    ids, found = [[3, 4, 5]], {}
    places = (0, 4094, 4096, 2**17 - 2, 2**17, MILLION - 3)
    whole = engine(backend)
    for first in (*places[::-1], *places):
        given = {"position_ids": [[first, first + 1, first + 2]]}
        own = whole.forward(ids, **given)[0]
        assert found.setdefault(first, own).tobytes() == own.tobytes()
        expected = engine("reference").forward(ids, **given)[0]
        np.testing.assert_allclose(own, expected, rtol=0, atol=2e-5)
    few = engine(backend, 4097)
    assert few.forward(ids, position_ids=[[4094, 4095, 4096]])[0].tobytes() == found[4094].tobytes()


def resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


def test_a_table_takes_the_memory_of_what_was_read():
    try:
        before = resident()
    except FileNotFoundError:
        pytest.skip("this system has no /proc")
    table = Angles(Rotary(1e4, 128, MILLION))
    assert resident() - before < 10e6
    table.fill(5000)
    np.testing.assert_array_equal(table.cos[:2, 0], np.cos([0.0, 1.0]).astype(np.float32))
    assert table.cos.nbytes == 4 * 64 * MILLION
    assert resident() - before < 20e6
