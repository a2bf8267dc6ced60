"""Measure attention from 128 to 32k tokens: time and memory beyond the arrays, into docs/attention.svg and .json.

    make plot        or, with matplotlib installed, and torch if it is to be in the figure:
    python asv_bench/plot_attention.py
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

from benchmarks.attention import THREADS, H, extra_memory, numpy_bytes, prepare
from benchmarks.ops import seconds

LENGTHS = [128 * 2**i for i in range(9)]
WIDTH = 64
MOST_NUMPY_BYTES = 4 * 2**30
ENOUGH_SECONDS, MOST_RUNS = 1.0, 500
DOCS = Path(__file__).parents[1] / "docs"

LINES = {
    "engine, full": ("engine", "full", "#c2410c", "-"),
    "engine, causal": ("engine", "causal", "#c2410c", "--"),
    "engine, window of 128": ("engine", "window 128", "#c2410c", ":"),
    "NumPy": ("numpy", "full", "#64748b", "-"),
    "PyTorch SDPA": ("torch SDPA", "full", "#2563eb", "-"),
}
"""Library, kind, colour and dashes of each line, by its name in the figure."""


def measure(library, kind, length):
    """Return the best time of a few runs in seconds, and the memory of the first in bytes, in this process."""
    _, attend = prepare(library, kind, length, WIDTH)
    extra = extra_memory(attend)
    times = [seconds(attend)]
    while sum(times) < ENOUGH_SECONDS and len(times) < MOST_RUNS:
        times.append(seconds(attend))
    return {"seconds": min(times), "bytes": extra}


def measure_apart(library, kind, length):
    """Run `point` in a separate process; the result is None if the library cannot run it."""
    command = [sys.executable, __file__, "--point", library, kind, str(length)]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def point(library, kind, length):
    """Return the result of `measure`, or None if the library cannot run it."""
    try:
        return measure(library, kind, length)
    except NotImplementedError as error:
        print(error, file=sys.stderr)
        return None


def measure_all(lengths):
    """Measure all lines: a list of {"length", "seconds", "bytes"} by the line's name."""
    lines = {}
    for name, (library, kind, *_) in LINES.items():
        for length in lengths:
            if library == "numpy" and numpy_bytes(length) > MOST_NUMPY_BYTES:
                break
            result = measure_apart(library, kind, length)
            if result is None:
                break
            lines.setdefault(name, []).append({"length": length, **result})
            print(f"{name:<22}{length:>6}  {result['seconds']:.3g} s  {result['bytes'] / 2**20:.3g} MiB", flush=True)
    return lines


def draw(lines, path):
    """Draw the time and the memory as two panels over the lengths."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "attention", "font.family": "sans-serif",
                         "axes.spines.top": False, "axes.spines.right": False})  # fmt: skip
    from matplotlib import pyplot as plt

    figure, panels = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
    scales = (("seconds", 1e3, "time, ms"), ("bytes", 2**-20, "memory beyond inputs and output, MiB"))
    for panel, (field, scale, title) in zip(panels, scales, strict=True):
        for name, points in lines.items():
            *_, colour, dashes = LINES[name]
            lengths = [p["length"] for p in points]
            # Memory below a few pages cannot be measured.
            panel.plot(lengths, [max(p[field] * scale, 0.01) for p in points], dashes, color=colour, label=name, lw=1.6)
        panel.set_xscale("log", base=2)
        panel.set_yscale("log")
        panel.set_xticks(lengths := sorted({p["length"] for points in lines.values() for p in points}),
                         [f"{n // 1024}k" if n >= 1024 else str(n) for n in lengths])  # fmt: skip
        panel.minorticks_off()
        panel.grid(alpha=0.25, lw=0.5)
        panel.set_title(title, fontsize=10, loc="left")
        panel.set_xlabel("tokens")
    panels[0].legend(frameon=False, fontsize=9)
    figure.savefig(path, metadata={"Date": None})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS, help="tokens of queries and keys")
    parser.add_argument("--out", type=Path, default=DOCS, help="folder of the figure and the numbers")
    parser.add_argument("--point", nargs=3, metavar=("LIBRARY", "KIND", "LENGTH"), help="measure one and print it")
    arguments = parser.parse_args()
    if arguments.point:
        library, kind, length = arguments.point
        print(json.dumps(point(library, kind, int(length))))
        return
    lines = measure_all(arguments.lengths)
    numbers = {"heads": H, "head_width": WIDTH, "threads": THREADS, "dtype": "float32", "lines": lines}
    (arguments.out / "attention.json").write_text(json.dumps(numbers, indent=1) + "\n")
    draw(lines, arguments.out / "attention.svg")


if __name__ == "__main__":
    main()
