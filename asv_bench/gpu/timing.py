"""Time contenders in turns, within a time limit."""

import time
from collections.abc import Callable
from statistics import median

TURNS = 5
SECONDS_A_TURN = 0.05


class Clock:
    """A countdown of a number of seconds."""

    def __init__(self, seconds: float):
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        return max(0.0, self._end - time.monotonic())


def take_turns(contenders: dict[str, Callable[[int], float]]) -> dict[str, dict]:
    """Time contenders in turns; each is a function from a number of calls to the seconds that they took.

    Returns each contender's median and minimum seconds per call, or `why` it failed. The order rotates by one each
    turn.
    """
    cells: dict[str, dict] = {}
    calls: dict[str, int] = {}
    times: dict[str, list[float]] = {}
    for name, run in contenders.items():
        try:
            run(2)
            calls[name] = max(1, min(1000, int(SECONDS_A_TURN / max(run(1), 1e-7))))
            times[name] = []
        except Exception as error:  # a library may raise any error
            cells[name] = {"why": f"{type(error).__name__}: {error}"[:200]}
    order = list(times)
    for _ in range(TURNS):
        for name in order:
            times[name].append(contenders[name](calls[name]) / calls[name])
        order = order[1:] + order[:1]
    for name, seconds in times.items():
        cells[name] = {"median": median(seconds), "minimum": min(seconds)}
    return {name: cells[name] for name in contenders}


def timed(work: Callable[[], object], wait: Callable[[], None]) -> Callable[[int], float]:
    """Return a contender: `work` queues one call, and `wait` returns when all queued work is done."""

    def run(calls: int) -> float:
        wait()
        start = time.perf_counter()
        for _ in range(calls):
            work()
        wait()
        return time.perf_counter() - start

    return run
