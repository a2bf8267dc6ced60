"""A `Stepper` over the table model, which checks that its caller keeps to the rules."""

import numpy as np

from engine.backends.steps import Scores, Top

from ..golden.table_model import table_logits


class TableStepper:
    """Computes each row from its tokens, and fails on a hypothesis that was released or belongs to another request.

    steps: for each step, the list of its rows.
    """

    def __init__(self, vocab_size=23, bias=None, longest=None):
        self.vocab_size, self.bias, self.longest = vocab_size, bias or {}, longest
        self.sources = {}
        self.tokens = {}  # hypothesis -> (request, tokens)
        self.made = self.opened = 0
        self.steps = []
        self.tops = []

    def open(self, source, tokens, waits):
        assert source is None or (source.dtype == np.int64 and source.ndim == 1)
        self.opened += 1
        self.sources[self.opened * 7] = source
        return self.opened * 7

    def _grow(self, rows):
        """Add the hypotheses of the rows; return their numbers and the logits of each."""
        assert rows
        self.steps.append(list(rows))
        numbers, logits = [], []
        for row in rows:
            assert row.request in self.sources, "the request is open"
            assert row.tokens.dtype == np.int64
            assert len(row.tokens) >= 1
            owner, before = (row.request, []) if row.parent is None else self.tokens[row.parent]
            assert owner == row.request, "the parent belongs to the request"
            tokens = [*before, *row.tokens.tolist()]
            assert self.longest is None or len(tokens) <= self.longest
            self.made += 1
            self.tokens[self.made] = (row.request, tokens)
            numbers.append(self.made)
            source = self.sources[row.request]
            begins = range(len(before) + 1, len(tokens) + 1) if row.every else [len(tokens)]
            logits += [table_logits(tokens[:i], self.vocab_size, self.bias, () if source is None else source.tolist())
                       for i in begins]
        return np.array(numbers), np.array(logits)

    def step(self, rows):
        numbers, logits = self._grow(rows)
        logits.flags.writeable = False
        return Scores(numbers, logits)

    def step_top(self, rows, k):
        assert 0 < k <= self.vocab_size
        self.tops.append(k)
        numbers, logits = self._grow(rows)
        ids = np.lexsort((np.broadcast_to(np.arange(self.vocab_size), logits.shape), -logits), axis=1)[:, :k]
        total = np.log(np.exp(logits.astype(np.float64)).sum(axis=1)).astype(np.float32)
        return Top(numbers, np.take_along_axis(logits, ids, axis=1), ids, total)

    def release(self, hypotheses):
        for hypothesis in hypotheses:
            del self.tokens[hypothesis]  # fails if it is not live

    def close(self, request):
        del self.sources[request]
        self.tokens = {h: pair for h, pair in self.tokens.items() if pair[0] != request}

    def assert_clean(self):
        """Fail if a request or a hypothesis is left."""
        assert not self.sources
        assert not self.tokens
