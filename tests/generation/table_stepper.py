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
        self.cells = {}  # hypothesis -> numbers of cells, as `engine.backends.cpu.cache.Cache` gives them
        self.made = self.opened = self.taken = 0
        self.steps = []

    def packed(self, source):
        return source

    def reset(self):
        self.sources, self.tokens, self.cells = {}, {}, {}

    @property
    def held(self):
        return 16 * len({cell for cells in self.cells.values() for cell in cells})

    def cut(self, hypothesis, length, request):
        assert request in self.sources, "the request is open"
        tokens = self.tokens[hypothesis][1]
        assert 0 < length <= len(tokens)
        return self._add(request, tokens[:length], self.cells[hypothesis][: -(-length // 16)])

    def _add(self, request, tokens, cells):
        self.made += 1
        self.tokens[self.made], self.cells[self.made] = (request, tokens), cells
        return self.made

    def _extended(self, parent, before, after):
        """Return the cells of a child, which copies the last one that another hypothesis or child has, too."""
        cells = self.cells.get(parent, ())
        if before % 16 and sum(cells[-1] in other for other in self.cells.values()) > 1:
            cells = cells[:-1]
        fresh = -(-after // 16) - len(cells)
        self.taken += fresh
        return (*cells, *range(self.taken - fresh, self.taken))

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
            numbers.append(self._add(row.request, tokens, self._extended(row.parent, len(before), len(tokens))))
            source = self.sources[row.request]
            lines += [table_logits(tokens[:i], self.vocab_size, self.bias, () if source is None else source.tolist())
                      for i in range(len(tokens) + 1 - row.scored, len(tokens) + 1)]
        scores = scores_of(rows, wanted, np.array(numbers), np.array(lines, np.float32).reshape(-1, self.vocab_size))
        scores.logits.flags.writeable = False
        return scores

    def release(self, hypotheses):
        for hypothesis in hypotheses:
            del self.tokens[hypothesis], self.cells[hypothesis]  # fails if it is not live

    def close(self, request):
        del self.sources[request]
        self.release([h for h, pair in self.tokens.items() if pair[0] == request])

    def assert_clean(self):
        """Fail if a request or a hypothesis is left."""
        assert not self.sources
        assert not self.tokens
