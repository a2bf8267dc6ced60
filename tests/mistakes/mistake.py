"""Define what a seeded mistake is: a few lines of one file, the wrong lines in their place, and who sees it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mistake:
    """One plausible slip in the package, which the tests have to see."""

    name: str
    what: str
    """What is wrong, in one plain sentence."""
    file: str
    right: str
    """The text that the file has now, one to three lines of it; it occurs there exactly once."""
    wrong: str
    tests: str
    """The arguments of pytest for the tests that should see the mistake, the fast ones first."""
    caught_by: tuple[str, ...]
    """Tests that were seen to fail, without their parameters."""
    build: tuple[str, ...] = ()
    """The extension modules to compile again, such as kernels_baseline or native."""
    isa: str | None = None
    """The instruction set that the engine is forced to use; None for its own choice."""
    cuda: bool = False
    """Whether the tests need the extra [cuda], which `make test-cuda` installs in build/cuda."""
