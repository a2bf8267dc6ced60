"""Count skipped tests by reason, in one line each, for the end of a run."""

from collections import Counter
from collections.abc import Iterable
from typing import Any


def by_reason(reports: Iterable[Any]) -> list[str]:
    """Return a line for each reason for which tests were skipped: how many, and why; most first."""
    counts = Counter(report.longrepr[2].removeprefix("Skipped: ") for report in reports)
    return [f"{count:5} skipped: {reason}" for reason, count in counts.most_common()]
