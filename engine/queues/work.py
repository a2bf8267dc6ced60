"""`Work`: a computation for a `ModelQueue`, cut into pieces, such as the sequences of a call of an encoder."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from ..base.stop import Stop

Pieces: TypeAlias = "Sequence[tuple[Work, Sequence[int]]]"
"""The works of a batch, each with the numbers of its pieces that the batch computes."""
Job: TypeAlias = "Callable[[Any, Stop], Sequence[Any] | np.ndarray]"
"""Gets `Pieces`, or what `Work.pack` makes of them, and returns one row for each, in their order: an array, or a list.

Pieces of several works are computed together if their jobs are equal, as two bound methods of one object are.
"""


@dataclass(eq=False)
class Work:
    """Pieces to compute, each once, in batches, the longest pieces first."""

    job: Job
    """Computes a batch."""
    costs: Sequence[int]
    """The tokens of each piece."""
    data: Any = None
    """The inputs of the pieces, for the job; the queue does not read them."""
    most: int | None = None
    """The most pieces of a batch that this work is in; None for no limit."""
    kind: Hashable = None
    """Names the options of the work; `Counts.unlike_batches` counts batches of works that differ in it."""
    look: Callable[[Sequence[Any] | np.ndarray], object] | None = None
    """Called with the rows of this work after each batch; an error that it raises ends this work alone."""
    pack: Callable[[Pieces], tuple[int, Any]] | None = None
    """Returns (the tokens of a batch, the argument of its job), one function for all works of a job. None leaves the
    pieces as the argument.

    The callers of the last batch still sleep while it runs, and wake up when the job begins.
    """
    order: list[int] = field(init=False, repr=False)
    """The numbers of the pieces, in the order in which they are computed."""

    def __post_init__(self) -> None:
        count = len(self.costs)
        self.order = [0] if count == 1 else sorted(range(count), key=self.costs.__getitem__, reverse=True)

    def packed(self, pieces: Pieces, tokens: int) -> tuple[int, Any]:
        """Return (the tokens of a batch with these pieces, the argument of its job). tokens: the sum of their costs."""
        return (tokens, pieces) if self.pack is None else self.pack(pieces)
