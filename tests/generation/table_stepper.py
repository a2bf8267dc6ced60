"""The steps of the table model, as `SourceStepper` has them, which checks that its caller keeps to the rules."""

import numpy as np

from engine.backends.step_checks import finite_rows
from engine.backends.steps import Scores, Top
from engine.base.stop import NEVER

from ..golden.table_model import table_logits


class TableStepper:
    """Computes each row from its tokens, and fails on a hypothesis that was released or belongs to another request.

    steps: for each step, the list of its rows.
    """

    exp = np.exp

    def __init__(self, vocab_size=23, bias=None, longest=None):
        self.vocab_size, self.bias, self.longest = vocab_size, bias or {}, longest
        self.sources = {}
        self.tokens = {}  # hypothesis -> (request, tokens)
        self.made = self.opened = 0
        self.steps = []

    def packed(self, source):
        return source

    def reset(self):
        self.sources, self.tokens = {}, {}

    def open(self, source):
        assert source is None or (source.dtype == np.int64 and source.ndim == 1)
        self.opened += 1
        self.sources[self.opened * 7] = source
        return self.opened * 7

    def step(self, rows, stop=NEVER):
        assert rows
        stop.check()
        self.steps.append(list(rows))
        numbers, lines = [], {False: [], True: []}
        for row in rows:
            assert row.request in self.sources, "the request is open"
            assert row.tokens.dtype == np.int64
            assert 0 <= row.scored <= len(row.tokens) >= 1
            assert row.best is None or 0 < row.best <= self.vocab_size
            owner, before = (row.request, []) if row.parent is None else self.tokens[row.parent]
            assert owner == row.request, "the parent belongs to the request"
            tokens = [*before, *row.tokens.tolist()]
            assert self.longest is None or len(tokens) <= self.longest
            self.made += 1
            self.tokens[self.made] = (row.request, tokens)
            numbers.append(self.made)
            source = self.sources[row.request]
            lines[row.best is not None] += [
                table_logits(tokens[:i], self.vocab_size, self.bias, () if source is None else source.tolist())
                for i in range(len(tokens) + 1 - row.scored, len(tokens) + 1)]
        logits, others = (np.array(own, np.float32).reshape(-1, self.vocab_size) for own in lines.values())
        logits.flags.writeable = False
        k = max(row.best or 0 for row in rows)
        ids = np.lexsort((np.broadcast_to(np.arange(self.vocab_size), others.shape), -others), axis=1)[:, :k]
        total = np.log(np.exp(others.astype(np.float64)).sum(axis=1)).astype(np.float32)
        top = Top(np.take_along_axis(others, ids, axis=1), ids, total)
        return Scores(np.array(numbers), finite_rows(rows, logits, top), logits, top)

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
