"""Test that the emulator adds as tensor cores do: the sums of an H200, whose errors docs/gpu.json has."""

import json

import numpy as np
import pytest

from asv_bench.gpu.data import normal
from engine.backends.numba_cuda.ptx.tensor_cores import add_products
from engine.weights.bfloat16 import from_bfloat16, to_bfloat16

from ...tools.paths import ROOT


def rounded(array):
    return from_bfloat16(to_bfloat16(array))


def test_the_sums_of_a_gpu():
    """All five linear kernels of the H200 had this error, so all of them had these sums."""
    checks = json.loads((ROOT / "docs" / "gpu.json").read_text(encoding="utf-8"))["checks"]
    N, M, K = 3001, 1000, 776
    x, w = rounded(normal(0, N, K)), rounded(normal(1, M, K) / np.float32(K**0.5))
    bias, residual = normal(2, M), normal(3, N, M)
    sums = np.zeros((N, M), np.float32)
    add_products(x, w, sums)
    exact = x.astype(np.float64) @ w.astype(np.float64).T + bias + residual
    error = float(np.linalg.norm(sums + bias + residual - exact) / np.linalg.norm(exact))
    measured = [row["error"] for rows in checks.values() for row in rows if row["name"].endswith(" residual")
                and row["bound"] == 3e-3]
    assert len(measured) == 5
    assert measured == pytest.approx([error] * 5, rel=1e-12)


@pytest.mark.parametrize(("products", "start", "total"), [
    ([1, 2.0**-24], 0, 1),                          # the sum has 24 bits
    ([1, *[2.0**-25] * 2], 0, 1),
    ([1, *[2.0**-25] * 4], 0, 1 + 2.0**-23),        # but is made of numbers with 25 bits behind the point
    ([1, *[2.0**-26] * 15], 0, 1),
    ([-1, *[-(2.0**-25)] * 4], 0, -1 - 2.0**-23),
    ([2.0**-30], 1, 1),
    ([0.0], 2.0**-140, 2.0**-140),                  # below the normal numbers
    ([0.0], 0, 0),
    ([float("inf")], 1, float("inf"))])
def test_a_step(products, start, total):
    x = np.array([products + [0] * (16 - len(products))], np.float32)
    sums = np.full((1, 1), start, np.float32)
    add_products(x, np.ones((1, 16), np.float32), sums)
    assert sums[0, 0] == total


def test_not_a_number_stays_in_its_row_and_column():
    x, y, sums = np.ones((2, 16), np.float32), np.ones((3, 16), np.float32), np.zeros((2, 3), np.float32)
    x[1, 3] = np.nan
    add_products(x, y, sums)
    assert np.array_equal(sums, [[16] * 3, [np.nan] * 3], equal_nan=True)
