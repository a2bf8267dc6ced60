"""The steps of the table model, as `SourceStepper` has them, which checks that its caller keeps to the rules."""

import numpy as np

from engine.backends.choice import scores_of
from engine.backends.step_checks import check_scored
from engine.backends.wants import LineWants
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
        check_scored(rows)
        wanted, numbers, lines = LineWants.of(rows, self.vocab_size), [], []
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
            lines += [table_logits(tokens[:i], self.vocab_size, self.bias, () if source is None else source.tolist())
                      for i in range(len(tokens) + 1 - row.scored, len(tokens) + 1)]
        scores = scores_of(rows, wanted, np.array(numbers), np.array(lines, np.float32).reshape(-1, self.vocab_size))
        scores.logits.flags.writeable = False
        return scores

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
