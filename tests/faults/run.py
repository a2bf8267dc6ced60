"""Put faults into pieces of work, and judge what comes of each. Every fault has a child process of its own."""

import gc
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import count

from engine.base.errors import EngineError
from tests.faults.shim import Shim
from tests.tools.limited import outcome

REPEATS = 2
"""How often a fault is repeated in its child: the first time may fill caches, and what grows later is a leak."""


@dataclass(frozen=True)
class Work:
    """A piece of work that is repeatable, and the functions of the C library that shall fail during it."""

    name: str
    functions: tuple[str, ...]
    run: Callable[[], object]
    """Returns the same value at each call, or raises `EngineError` or `MemoryError`, and nothing else."""
    prepare: Callable[[], object] = lambda: None
    """Is called before each run, without faults."""
    leftover: Callable[[bool], str] = lambda ended: ""
    """Takes whether a run ended without an error; says what is wrong beside its result, or nothing."""


@dataclass
class Report:
    """What came of all faults."""

    points: Counter[str] = field(default_factory=Counter)
    """How many faults each function has had."""
    results: Counter[str] = field(default_factory=Counter)
    """How many ended in the right answer, and how many in a clear error."""
    bad: list[str] = field(default_factory=list)
    """The other ones, in words."""


def inject(works: Iterable[Work], shim: Shim, *, step: int = 1, seconds: float = 30) -> Report:
    """Run each piece of work with each `step`-th call of its functions failing; for 1, also with all later ones.

    seconds: as for `tests.tools.limited.outcome`.
    """
    report = Report()
    for work in works:
        work.prepare()
        expected = work.run()
        gc.collect()
        gc.freeze()  # so that a collection in a child looks at the child's own objects only
        for function in work.functions:
            for forever in (False, True)[: 1 + (step == 1)]:
                _inject(work, expected, shim, function, forever, step, seconds, report)
        print(f"{work.name}: {sum(report.points.values()):,} faults so far, {len(report.bad):,} bad", flush=True)
    return report


def _inject(work: Work, expected: object, shim: Shim, function: str, forever: bool, step: int, seconds: int,
            report: Report) -> None:
    for n in count(0, step):
        result = outcome(_examine, work, expected, shim, function, n, forever, seconds=seconds)
        if result == "ok: 'not reached'":
            return
        report.points[function] += 1
        if result in ("ok: 'right'", "ok: 'error'"):
            report.results[result[5:-1]] += 1
        else:
            report.bad.append(f"{work.name}: {function} {n}{' and later' if forever else ''}: {result}")
            if "took too long" in result or n > 20_000:
                return


def _examine(work: Work, expected: object, shim: Shim, function: str, n: int, forever: bool) -> str:
    """Return "right" or "error", or what is wrong, or "not reached" if the function has fewer calls."""
    growth = []
    for _ in range(REPEATS):
        work.prepare()
        before = shim.held()
        shim.arm(function, n, forever)
        try:
            result = "right" if work.run() == expected else "a wrong answer"
        except (EngineError, MemoryError) as error:
            # Python raises MemoryError without a text. Native code itself gives one, if there is memory for it.
            result = "error" if str(error) or forever or not shim.was_direct() else "an error without text"
        calls = shim.disarm()
        after = shim.held()
        growth.append({name: after[name] - before[name] for name in after})
        if result in ("right", "error"):
            result = work.leftover(result == "right") or result
        if result not in ("right", "error"):
            return result
        if calls <= n:
            return "not reached"
    leaks = {name: least for name in growth[0] if (least := min(grown[name] for grown in growth[1:])) > 0}
    if leaks:
        return f"each fault leaks {leaks}"
    work.prepare()
    return result if work.run() == expected else "the next call is wrong"
