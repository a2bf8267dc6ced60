"""The best of given logits, and a program of nothing but picked rows and their product with a vocabulary."""

import numpy as np

from engine.backends.cpu.lowering import lower
from engine.backends.cpu.packer import Packer
from engine.backends.steps import Chosen, Row, Words
from engine.backends.wants import LineWants, Want
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
    """A vocabulary product of random weights, and logits of random rows as `Product.multiply` computes them.

    bias: the logits [V] of all rows, or None.
    """

    def __init__(self, kernels, precision, M, V, D, scale=1.0, seed=0, bias=None):
        rng = np.random.default_rng(seed)
        weights = {"w": rng.standard_normal((V, D), np.float32),
                   # Padding, with the bias 0, would be the best.
                   "b": rng.standard_normal(V, np.float32) - np.float32(30)}
        if precision == "int8":
            weights |= {"w": random_int8(rng, V, D), "w_scale": rng.uniform(0.01, 0.02, V).astype(np.float32)}
        if bias is not None:
            weights |= {"w": np.zeros((V, D), np.float32), "b": bias}
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

    def run(self, arrays, threads=1, rows=slice(None), picks=None, wanted=None, chosen=None, bundles=False,
            stop=None):
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
                                        picked=np.stack([counts, places], axis=1), wanted=wanted, chosen=chosen)

    def choose(self, wants, written=0, **options):
        """Return the logits of the first `written` picked rows, and what the others want; options: those of `run`."""
        wanted = self.wanted(wants)
        counts = [wanted.best_at[-1], wanted.likely_at[-1], wanted.drawn_at[-1]]
        totals, given, *floats = (guarded(1, n) for n in (len(wants), wanted.given_at[-1], *np.repeat(counts, 2)))
        ids = [np.full(n + 32, 77, np.int32) for n in counts]
        out = guarded(written, self.width, self.width)
        lists = [(own[16 : 16 + n], values[0], logits[0]) for own, n, values, logits in
                 zip(ids, counts, floats[::2], floats[1::2], strict=True)]
        self.run([out] if written else [], wanted=wanted if len(wants) else None,
                 chosen=(totals[0], *lists[0], *lists[1], given[0], *lists[2]), **options)
        assert_guards(out, totals, given, *floats)
        for own in ids:
            assert (own[:16] == 77).all()
            assert (own[-16:] == 77).all()
        best, likely, drawn = (Words(*map(np.array, own)) for own in lists)
        return np.array(out[:, : self.V]), Chosen(np.array(totals[0]), best, likely, np.array(given[0]), drawn)

    def wanted(self, wants):
        """Return the arrays of what some lines want."""
        row = Row(0, None, np.zeros(len(wants), np.int64), len(wants), tuple(wants))
        return LineWants.of([row] if wants else [], self.V)

    def mixed(self, k, written, **options):
        """Return the logits of the first `written` picked rows; of the others the k best, their ids, and log_sum_exp.

        options: those of `run`.
        """
        picks = options.get("picks")
        picked = sum(count for _, count in picks) if picks else len(self.x[options.get("rows", slice(None))])
        M, few = picked - written, min(k, self.V)
        logits, found = self.choose([Want(best=few)] * M, written, **options)
        values, ids = empty_best(M, k)
        values[:, :few], ids[:, :few] = found.best.values.reshape(M, few), found.best.ids.reshape(M, few)
        return logits, values, ids, found.log_sum_exp

    def best(self, k, **options):
        """Return the k best logits of the picked rows, their ids, and the logarithms of the sums."""
        return self.mixed(k, 0, **options)[1:]
