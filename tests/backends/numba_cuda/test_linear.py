"""Test linear layers on tensor cores, emulated: against float64, and that all tiles give the same bits."""

import math
from typing import NamedTuple

import numpy as np
import pytest

from engine.backends.numba_cuda.kernels import linear, linear_few, linear_hopper
from engine.backends.numba_cuda.ptx.epilogue import ACTIVATIONS, interleave
from engine.weights.bfloat16 import from_bfloat16, to_bfloat16

from ...tools import cuda_emulator
from ...tools.hopper_emulator import tensor_map

HOPPER = {
    "one": linear_hopper.HopperTile(64, 32, 2, consumers=1),
    "shared": linear_hopper.HopperTile(128, 32, 2),
    "alternate": linear_hopper.HopperTile(128, 32, 2, alternate=True),
}
"""Narrow tiles that work like LARGE, ALTERNATE and SMALL."""


class Few(NamedTuple):
    """Stands for a tile of `linear_few`."""

    tokens: int
    laid_out: bool = False


EXACT = {
    "identity": lambda x: x,
    "gelu": lambda x: x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2))),
    "gelu_tanh": lambda x: x * 0.5 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "relu": lambda x: np.maximum(x, 0),
    "silu": lambda x: x / (1 + np.exp(-x)),
}


class Problem:
    """Random bfloat16 operands, and the exact results in float64."""

    def __init__(self, N, M, K, seed=0):
        rng = np.random.default_rng(seed)
        self.x = to_bfloat16(rng.standard_normal((N, K), np.float32))
        self.w = to_bfloat16(rng.standard_normal((M, K), np.float32) / np.float32(math.sqrt(K)))
        self.bias = rng.standard_normal(M, np.float32)
        self.residual = rng.standard_normal((N, M), np.float32)

    def exact(self, activation, residual, gate=False):
        sums = from_bfloat16(self.x).astype(float) @ from_bfloat16(self.w).astype(float).T + self.bias
        if gate:        # pairs of the gate, then of the other map
            pairs = sums.reshape(len(sums), -1, 2, 2)
            return (EXACT[activation](pairs[:, :, 0]) * pairs[:, :, 1]).reshape(len(sums), -1)
        return EXACT[activation](sums) + (self.residual if residual else 0)

    def run(self, tile, activation="identity", residual=False, late=True, grid=1, **options):
        (N, K), M = self.x.shape, len(self.w)
        # The sum overwrites the residual, as in an encoder. Without a residual, elements that are not written stay NaN.
        out = np.full((N, M // 2 if options.get("gate") else M), 0x7FFF, np.uint16)
        if options.get("wide"):
            out = np.full((N, M), np.nan, np.float32)
        out = self.residual.copy() if residual else out
        addend = out if residual else np.zeros((1, 1), np.float32)
        if isinstance(tile, linear.Tile):
            kernel = linear.linear_kernel(activation, residual, tile, **options)
            grid = -(-M // tile.columns), -(-N // tile.rows)
            cuda_emulator.launch(kernel, grid, self.x, self.w, self.bias, addend, out, late=late)
        elif isinstance(tile, Few):
            kernel = linear_few.linear_kernel(activation, residual, tile.tokens, **options)
            w = linear_hopper.lay_out(self.w) if tile.laid_out else self.w
            cuda_emulator.launch(kernel, linear_few.linear_grid(N, M, tile.tokens), self.x, w, self.bias, addend, out,
                                 np.int32(tile.laid_out), late=late)
        else:
            kernel = linear_hopper.linear_kernel(activation, residual, tile, **options)
            maps = tensor_map(self.x, tile.rows), tensor_map(linear_hopper.lay_out(self.w), tile.columns)
            cuda_emulator.launch(kernel, grid, *maps, self.bias, addend, out, np.int32(K), late=late)
        return out if out.dtype == np.float32 else from_bfloat16(out)


def assert_close(out, exact, rounding):
    assert np.all(np.abs(out - exact) <= rounding * np.abs(exact) + 4e-6)


BFLOAT16 = 2**-8 * 1.001
"""Slightly more than half a unit in the last place."""


@pytest.mark.parametrize("late", [True, False], ids=["late", "early"])
@pytest.mark.parametrize(("N", "M", "K"), [(33, 40, 104), (1, 8, 8), (32, 32, 232)])
def test_small_tiles(N, M, K, late):
    problem = Problem(N, M, K)
    assert_close(problem.run(linear.SMALL, late=late), problem.exact("identity", False), BFLOAT16)


@pytest.mark.parametrize("late", [True, False], ids=["late", "early"])
@pytest.mark.parametrize(("tile", "N", "M", "K"), [(Few(16), 9, 24, 680), (Few(16, True), 16, 8, 8),
                                                   (Few(64, True), 70, 24, 520), (Few(64), 3, 8, 72)], ids=str)
def test_few_rows(tile, N, M, K, late):
    problem = Problem(N, M, K)
    assert_close(problem.run(tile, residual=True, late=late), problem.exact("identity", True), 1e-6)


def test_large_tiles_with_a_residual_in_place():
    problem = Problem(70, 136, 104)
    assert_close(problem.run(linear.LARGE, residual=True), problem.exact("identity", True), 1e-6)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activations(activation):
    problem = Problem(9, 40, 64)
    assert_close(problem.run(linear.SMALL, activation), problem.exact(activation, False), BFLOAT16)


@pytest.mark.parametrize("late", [True, False], ids=["late", "early"])
@pytest.mark.parametrize(("way", "N", "grid"),
                         [("one", 70, 1), ("shared", 150, 2), ("alternate", 150, 1), ("alternate", 20, 3)])
def test_hopper(way, N, grid, late):
    problem = Problem(N, 72, 200)
    assert_close(problem.run(HOPPER[way], residual=True, late=late, grid=grid), problem.exact("identity", True), 1e-6)


@pytest.mark.parametrize("way", HOPPER)
def test_hopper_with_an_activation_and_a_short_depth(way):
    problem = Problem(5, 40, 8)
    assert_close(problem.run(HOPPER[way], "gelu"), problem.exact("gelu", False), BFLOAT16)


def test_a_token_alone_has_the_bits_it_has_among_others():
    """So it has with every tile, and the products of a warp add as those of a warpgroup do."""
    tiles = linear.SMALL, linear.LARGE, *HOPPER.values(), Few(16), Few(64), Few(64, laid_out=True)
    problem = Problem(70, 40, 136)
    together = [problem.run(tile, residual=True) for tile in tiles]
    problem.x, problem.residual = problem.x[67:68].copy(), problem.residual[67:68].copy()
    alone = [problem.run(tile, residual=True) for tile in tiles]
    for out in [*alone, *(out[67:68] for out in together)]:
        np.testing.assert_array_equal(out, alone[0])


@pytest.mark.parametrize("rows", [16, 24])
def test_lay_out_permutes_whole_sixteens(rows):
    w = np.arange(1, rows + 1, dtype=np.uint16)[:, None] * np.ones(8, np.uint16)
    laid = linear_hopper.lay_out(w)
    assert laid.shape == (rows + rows % 16, 8)
    assert laid[:16, 0].tolist() == [1, 2, 5, 6, 9, 10, 13, 14, 3, 4, 7, 8, 11, 12, 15, 16]
    assert sorted(laid[:, 0]) == [0] * (rows % 16) + list(range(1, rows + 1))


@pytest.mark.parametrize("rows", [16, 24])
def test_lay_out_on_the_device(rows):
    w = Problem(1, rows, 1032).w
    out = np.full((rows + rows % 16, 1032), 0xFFFF, np.uint16)
    cuda_emulator.launch(linear_hopper.lay_out_kernel(), linear_hopper.lay_out_grid(*out.shape), w, out)
    np.testing.assert_array_equal(out, linear_hopper.lay_out(w))


def test_gelu_keeps_its_bounds():
    x = np.linspace(-12, 12, 100001, dtype=np.float32)
    (got,) = ACTIVATIONS["gelu"](x)
    error = np.abs(got - EXACT["gelu"](x.astype(float)))
    assert error.max() <= 7e-7
    near = (x > -4) & (x != 0)
    assert np.max(error[near] / np.abs(EXACT["gelu"](x[near].astype(float)))) <= 6e-6


@pytest.mark.parametrize("tile", [linear.SMALL, linear.LARGE, *HOPPER.values(), Few(16), Few(64)], ids=str)
def test_a_gate(tile):
    problem = Problem(9, 48, 40)
    assert_close(problem.run(tile, "silu", gate=True), problem.exact("silu", False, gate=True), BFLOAT16)


@pytest.mark.parametrize("tile", [linear.SMALL, HOPPER["alternate"], Few(16)], ids=str)
def test_a_result_in_float32(tile):
    problem = Problem(9, 40, 40)
    assert_close(problem.run(tile, wide=True), problem.exact("identity", False), 1e-6)


@pytest.mark.parametrize("tile", [linear.SMALL, linear.LARGE], ids=str)
def test_maps_side_by_side(tile):
    """Each map reads columns of its own, and columns behind them are not read."""
    problem, z = Problem(9, 80, 24), 2
    x = to_bfloat16(np.random.default_rng(1).standard_normal((9, 3 * 24), np.float32))
    out = np.full((9, 80), 0x7FFF, np.uint16)
    grid = -(-40 // tile.columns), -(-9 // tile.rows), z
    cuda_emulator.launch(linear.linear_kernel(tile=tile), grid, x, problem.w, problem.bias,
                         np.zeros((1, 1), np.float32), out)
    parts = []
    for i in range(z):
        problem.x = x[:, 24 * i:24 * i + 24]
        parts.append(problem.exact("identity", False)[:, 40 * i:40 * i + 40])
    assert_close(from_bfloat16(out), np.concatenate(parts, axis=1), BFLOAT16)


def test_rows_of_a_gate_take_turns():
    assert interleave(np.arange(4), np.arange(10, 14)).tolist() == [0, 1, 10, 11, 2, 3, 12, 13]
    assert interleave(np.zeros((4, 3)), np.ones((4, 3)))[:, 0].tolist() == [0, 0, 1, 1, 0, 0, 1, 1]


def test_what_excludes_what():
    with pytest.raises(ValueError, match="got activation 'gelu'"):
        linear.linear_kernel("gelu", residual=True)
    with pytest.raises(ValueError, match="a gate is bfloat16"):
        linear.linear_kernel("gelu", gate=True, wide=True)
