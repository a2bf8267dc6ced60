"""Define what a seeded mistake is: a few lines of one file, the wrong lines in their place, and who sees it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Mistake:
    """One plausible slip in the package, which the tests have to see."""

    what: str
    """What is wrong, in one plain sentence."""
    file: str
    right: str
    """The text that the file has now, one to three lines of it; it occurs there exactly once."""
    wrong: str
    caught_by: tuple[str, ...]
    """The tests that fail of it, without their parameters; they alone are run."""
    cases: str
    """Which cases of these tests are run, as an expression of pytest's -k; '' for all."""
    build: tuple[str, ...]
    """The extension modules to compile again, such as kernels_baseline or native."""
    isa: str | None
    """The instruction set that the engine is forced to use; None for its own choice."""
    cuda: bool
    """Whether the tests need the extra [cuda-compile], which `make test-cuda` installs."""

    @property
    def name(self) -> str:
        """Return the file and the sentence, which name the mistake."""
        return f"{self.file}: {self.what}"


def seed(what: str, file: str, right: str, wrong: str, *caught_by: str, cases: str = "", build: tuple[str, ...] = (),
         isa: str | None = None, cuda: bool = False) -> Mistake:  # fmt: skip
    """Return a mistake from a row of a table."""
    return Mistake(what, file, right, wrong, caught_by, cases, build, isa, cuda)
