"""The best of given logits, and a program of nothing but picked rows and their product with a vocabulary."""

import numpy as np

from engine.backends.cpu.lowering import lower
from engine.backends.cpu.packer import Packer
from engine.programs.operations import Buffer, Linear, LinearPart, Pick, Store
from engine.programs.program import Program

from .tools import assert_guards, guarded, random_int8, round_up


def empty_best(M, k):
    return np.full((M, k), -np.inf, np.float32), np.full((M, k), -1, np.int32)


def sort(logits, k):
    """Return values and ids of the k largest numbers of each row, lowest id first among equals, by sorting."""
    values, ids = empty_best(len(logits), k)
    for row, x in enumerate(logits):
        numbers = np.flatnonzero(~np.isnan(x))
        numbers = numbers[np.lexsort((numbers, -x[numbers]))][:k]
        values[row, : len(numbers)], ids[row, : len(numbers)] = x[numbers], numbers
    return values, ids


def log_sum_exp(logits, dtype):
    """Return the formula's [M], in the given precision."""
    x = logits.astype(dtype)
    highest = x.max(axis=1, keepdims=True)
    return (highest[:, 0] + np.log(np.exp(x - highest).sum(axis=1))).astype(dtype)


class Vocabulary:
    """A vocabulary product of random weights, and logits of random rows as `Product.multiply` computes them."""

    def __init__(self, kernels, precision, M, V, D, scale=1.0, seed=0):
        rng = np.random.default_rng(seed)
        weights = {"w": rng.standard_normal((V, D), np.float32),
                   # Padding, with the bias 0, would be the best.
                   "b": rng.standard_normal(V, np.float32) - np.float32(30)}
        if precision == "int8":
            weights |= {"w": random_int8(rng, V, D), "w_scale": rng.uniform(0.01, 0.02, V).astype(np.float32)}
        self.V, self.D, self.product = V, D, kernels.product(precision)
        self.x = rng.standard_normal((M, D), np.float32)
        linear = Linear("p", (LinearPart("w", "b", "y", V),), scale=scale)
        self.program = Program((Pick("x", "p"), linear, Store("y", top=True)), (("x", Buffer(D)),))
        self.packer = Packer(self.product, weights)
        self.map = self.packer.linear(linear, Buffer(D))
        self.width = round_up(V, kernels.VL)
        out = np.empty((M, self.width), np.float32)
        operands, ranges = self.converted(self.x if scale == 1.0 else self.x * np.float32(scale))
        self.product.multiply(self.map, operands, out, ranges=ranges)
        self.logits = out[:, :V]
        self.executors = {}

    def converted(self, x):
        """Return the operands of rows, in whole strips, and their ranges."""
        product = self.product
        if not product.converts:
            return x, None
        width = product.operands_stride(x.shape[1]) * product.operand_bytes
        operands = np.zeros((round_up(len(x), product.strip), width), np.uint8)
        ranges = np.zeros((len(x), 2), np.float32) if product.precision == "int8" else None
        product.convert(x, operands, ranges)
        return operands, ranges

    def run(self, arrays, threads=1, rows=slice(None), picks=None, best=None, bundles=False, stop=None):
        """Run the program for some of the rows; picks: (tokens of a sequence, how many of the last ones are picked)."""
        if threads not in self.executors:
            self.executors[threads] = lower(self.program, self.product, self.packer, threads)
        x = np.ascontiguousarray(self.x[rows])
        picks = np.array(picks or [(len(x), len(x))])
        lengths, counts = picks.T
        firsts, places = (np.cumsum([0, *sizes[:-1]]) for sizes in (lengths, counts))
        sequences = np.stack([firsts, lengths, np.zeros_like(firsts) if bundles else firsts], axis=1)
        groups = [(1, n) for n in lengths] if bundles else [(len(lengths), len(x))]
        self.executors[threads].forward(sequences, np.array(groups), bundles, None, x, None, None, arrays, stop=stop,
                                        picked=np.stack([counts, places], axis=1), best=best)

    def mixed(self, k, written, **options):
        """Return the logits of the first `written` picked rows; of the others the k best, their ids, and log_sum_exp.

        options: those of `run`.
        """
        picks = options.get("picks")
        picked = sum(count for _, count in picks) if picks else len(self.x[options.get("rows", slice(None))])
        M = picked - written
        out, values, total = guarded(written, self.width, self.width), guarded(M, k, k), guarded(1, M)
        ids = np.full(M * k + 32, 77, np.int32)
        best = (values, ids[16:-16].reshape(M, k), total[0]) if M else None
        self.run([out] if written else [], best=best, **options)
        for array in (out, values, total):
            assert_guards(array)
        assert (ids[:16] == 77).all()
        assert (ids[-16:] == 77).all()
        return np.array(out[:, : self.V]), np.array(values), ids[16:-16].reshape(M, k).copy(), np.array(total[0])

    def best(self, k, **options):
        """Return the k best logits of the picked rows, their ids, and the logarithms of the sums."""
        return self.mixed(k, 0, **options)[1:]
