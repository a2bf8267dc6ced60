"""Time real passes on 1 and 2 threads of this machine beside their simulation: `python -m simulation.compare`.

The cases take turns, so that other load on the machine affects them all. The table has the best and the median of the
time, and the least processor's time for each thread, in which time of other processes does not count (but threads that
wait for each other do). Each is followed by its ratio to the simulation.
"""

import argparse
import time
from dataclasses import replace

import numpy as np
from benchmarks.models import CONFIGS

from .__main__ import lengths_of
from .calibrate import batch_of, plan_of
from .hardware import CALIBRATED, MACHINES, Rates, load, with_measured
from .program import listing
from .threads import forward

CASES = (("BERT-base", "float32", "1x128"), ("BERT-base", "int8", "1x16"), ("BERT-base", "int8", "1x512"),
         ("BERT-base", "int8", "8x128"), ("MiniLM", "float32", "8x128"), ("MiniLM", "int8", "32x128"))  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--calibration", default=CALIBRATED, help="name of this CPU; default %(default)s")
    arguments = parser.parse_args()
    turns, calibration = arguments.turns, load(arguments.calibration)
    plans = {(model, precision, threads): plan_of(CONFIGS[model], precision, threads)
             for model, precision, _ in CASES for threads in (1, 2)}  # fmt: skip
    cases = [(*case, threads) for case in CASES for threads in (1, 2)]
    times: dict[tuple, list[float]] = {case: [] for case in cases}
    processor: dict[tuple, list[float]] = {case: [] for case in cases}
    for _ in range(turns):
        for model, precision, shape, threads in cases:
            plan, batch = plans[model, precision, threads], batch_of(CONFIGS[model], lengths_of(shape))
            plan.forward(batch)     # brings the model's own weights into the caches
            start, work = time.perf_counter(), time.process_time()
            plan.forward(batch)
            times[model, precision, shape, threads].append(time.perf_counter() - start)
            processor[model, precision, shape, threads].append((time.process_time() - work) / threads)
    print("     model precision  shape  threads  simulated    best, ratio   median, ratio   processor, ratio")
    for case in cases:
        model, precision, shape, threads = case
        simulated = simulate(calibration, *case)
        cells = [f"{t * 1e3:8.2f} {t / simulated:5.2f}" for t in
                 (min(times[case]), float(np.median(times[case])), min(processor[case]))]  # fmt: skip
        print(f"{model:>10} {precision:>9} {shape:>6} {threads:>8} {simulated * 1e3:7.2f} ms {'  '.join(cells)}")


def simulate(calibration: dict, model: str, precision: str, shape: str, threads: int) -> float:
    """Return the simulated seconds of a pass on this machine, which has one socket and a cache for all its cores."""
    hardware = with_measured(MACHINES["epyc"], calibration)
    hardware = replace(hardware, cores=threads, memory_bandwidth=calibration["read_bandwidth"]["2"])
    rates = Rates(calibration, precision)
    return forward(listing(CONFIGS[model], rates), rates, hardware, lengths_of(shape)).seconds


if __name__ == "__main__":
    main()
