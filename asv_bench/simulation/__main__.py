"""Simulate forward passes on many cores, and print a table.

    python -m simulation --cores 1,2,4,8,16,32,64,128 --shape 32x128 --precision int8       in the folder asv_bench
    python -m simulation.calibrate NAME     measure the kernels on this machine, for the simulation to use
    python -m simulation.compare        real passes of 1 and 2 threads, beside their simulation
"""

import argparse
from dataclasses import fields, replace

import numpy as np
from benchmarks.models import CONFIGS

from engine.model.run_config import RunConfig

from .hardware import CALIBRATED, MACHINES, Hardware, Rates, load, with_measured
from .program import listing
from .threads import ENGINES, Rule, efficiency, forward

MAX_TOKENS = RunConfig().max_tokens
MIXED = "mixed"
"""The shape of 256 sentences with 3 to 200 tokens each."""

HEADER = """   cores       time  efficiency  tokens/s   waiting  short of bytes   memory GB/s  of socket 0"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cores", default="1,2,4,8,16,32,64,128", help="numbers of cores; default %(default)s")
    parser.add_argument("--shape", default="32x128", help=f"sequences x tokens, or {MIXED}; default %(default)s")
    parser.add_argument("--precision", default="int8", help="default %(default)s")
    parser.add_argument("--model", default="BERT-base", choices=CONFIGS, help="default %(default)s")
    parser.add_argument("--calibration", default=CALIBRATED, help="CPU with the measured times; default %(default)s")
    parser.add_argument("--machine", default="epyc", choices=MACHINES, help="default %(default)s")
    parser.add_argument("--sockets", type=int, default=1)
    parser.add_argument("--placement", choices=("first", "interleaved", "copied"), help="where packed weights lie")
    parser.add_argument("--max-tokens", type=int, default=MAX_TOKENS, help="of the engine; default %(default)s")
    for field in fields(Rule):
        parser.add_argument(f"--{field.name}", type=int, default=field.default, help="default %(default)s")
    a = parser.parse_args()
    rule = Rule(**{field.name: getattr(a, field.name) for field in fields(Rule)})
    calibration = load(a.calibration)
    hardware = with_measured(MACHINES[a.machine], calibration)
    hardware = replace(hardware, sockets=a.sockets, placement=a.placement or hardware.placement)
    cores = [int(n) for n in a.cores.split(",")]
    rows = table(a.model, calibration, a.precision, hardware, a.shape, cores, rule, a.max_tokens)
    print(f"Simulation of {a.model} in {a.precision}, {a.shape}, on {a.machine} with cores as measured: "
          f"{calibration['machine']}\n{HEADER}")  # fmt: skip
    for row in rows:
        print(line(row))


def lengths_of(shape: str) -> list[int]:
    """Return the tokens of each sequence of a shape."""
    if shape == MIXED:
        return np.random.default_rng(0).integers(3, 201, 256).tolist()
    B, T = map(int, shape.split("x"))
    return [T] * B


def table(model: str, calibration: dict, precision: str, hardware: Hardware, shape: str, cores: list[int],
          rule: Rule = ENGINES, max_tokens: int = MAX_TOKENS) -> list[dict]:  # fmt: skip
    """Simulate a pass for each number of cores, and return the figures of each; bandwidths are in bytes a second."""
    rates = Rates(calibration, precision)
    code, lengths = listing(CONFIGS[model], rates), lengths_of(shape)
    alone = forward(code, rates, replace(hardware, cores=1, sockets=1), lengths)
    rows = []
    for n in cores:
        h = replace(hardware, cores=n, sockets=min(n, hardware.sockets))
        run = forward(code, rates, h, lengths, rule, max_tokens)
        rows.append({
            "cores": n, "seconds": run.seconds, "efficiency": efficiency(run, alone, n), "tokens": sum(lengths),
            "waiting": run.waited / (n * run.seconds), "short": run.short / (n * run.seconds),
            "memory": sum(size for (kind, _), size in run.moved.items() if kind == "memory") / run.seconds,
            "first": run.moved["memory", 0] / run.seconds,
        })  # fmt: skip
    return rows


def line(row: dict) -> str:
    """Format one line of the table under `HEADER`."""
    return (f"{row['cores']:>8} {row['seconds'] * 1e3:7.2f} ms {row['efficiency']:11.2f} "
            f"{row['tokens'] / row['seconds']:9,.0f} {row['waiting']:9.1%} {row['short']:15.1%} "
            f"{row['memory'] / 1e9:13.0f} {row['first'] / 1e9:12.0f}")  # fmt: skip


if __name__ == "__main__":
    main()
