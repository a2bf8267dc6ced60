"""State what the engine must reach on a GPU, as ratios of times of one run, and compare the results with it."""

from collections.abc import Iterator
from dataclasses import dataclass

from .cases import CALLS, OTHERS, WINDOW

TORCH = ("torch eager",)
SDPA = ("torch SDPA flash", "torch SDPA cuDNN")


@dataclass(frozen=True)
class Goal:
    """A case, and how many times as fast as the fastest of some contenders another one must be."""

    section: str
    case: str
    least: float
    against: tuple[str, ...] = ()
    """Contenders; empty for a bound on the time, which `least` states as 1 / seconds."""
    contender: str = "engine"

    @property
    def text(self) -> str:
        """Return what is compared."""
        what = f"against {' or '.join(self.against)}" if self.against else "in runs a second"
        return f"{self.section} {self.case}: {self.contender} {what}"

    def found(self, cells: dict[str, dict]) -> float | None:
        """Return the ratio by median times, or None if one of the contenders was not timed."""
        times = {name: cell["median"] for name, cell in cells.items() if "median" in cell}
        others = [times[name] for name in self.against if name in times]
        if self.contender not in times or (self.against and not others):
            return None
        return (min(others) if self.against else 1.0) / times[self.contender]


BERT = [Goal("encoder", "BERT-base 128x128", 1.10, TORCH), Goal("encoder", "BERT-base 1x128", 1 / 0.7e-3)]
GOALS = [
    Goal("rows", "norm 16384x768", 0.8, ("copy",)), *BERT,
    *(Goal("window", str(case), 1 / 0.15, ("engine all keys",), "engine window") for case in WINDOW),
    *(Goal("operation", str(case), 0.9, SDPA) for case in CALLS),
    *(Goal("encoder", str(case), 1.0, ("torch compiled",) if case.compiled else TORCH) for case in OTHERS),
]
"""What must be reached, what decides most first."""


def goal_lines(numbers: dict) -> Iterator[str]:
    """Yield a Markdown table of the goals."""
    yield from ("| goal | asked | found | |", "|---|---|---|---|")
    for goal in GOALS:
        row = next((row for row in numbers.get(goal.section, []) if row["case"] == goal.case), None)
        found = None if row is None else goal.found(row["cells"])
        verdict = "not measured" if found is None else "met" if found >= goal.least else "MISSED"
        yield f"| {goal.text} | {goal.least:,.2f} | {'' if found is None else f'{found:,.2f}'} | {verdict} |"
