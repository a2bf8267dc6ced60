"""`Work`: what a caller wants computed, cut into pieces."""

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
    """Pieces to compute. Each is computed once, and the longest first."""

    job: Job
    costs: Sequence[int]
    """The tokens of each piece."""
    data: Any = None
    """What the job reads of the pieces; the queue does not look at it."""
    most: int | None = None
    """The most pieces of a batch that this work is in; None for no limit."""
    kind: Hashable = None
    """What the work asks for beside its pieces, by which `Counts.unlike_batches` tells works apart."""
    look: Callable[[Sequence[Any] | np.ndarray], object] | None = None
    """Gets the rows of this work that a batch has computed; an error that it raises ends this work alone."""
    pack: Callable[[Pieces], tuple[int, Any]] | None = None
    """Returns the tokens of a batch, and what its job reads; works of one job have one. None for the pieces and costs.

    The callers of the batch before sleep meanwhile, and wake up when the job begins.
    """
    order: list[int] = field(init=False, repr=False)
    """The numbers of the pieces, in the order in which they are computed."""

    def __post_init__(self) -> None:
        count = len(self.costs)
        self.order = [0] if count == 1 else sorted(range(count), key=self.costs.__getitem__, reverse=True)

    def packed(self, pieces: Pieces, tokens: int) -> tuple[int, Any]:
        """Return the tokens of a batch with these pieces, and what its job reads. tokens: the sum of their costs."""
        return (tokens, pieces) if self.pack is None else self.pack(pieces)
