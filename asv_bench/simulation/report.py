"""Write docs/simulation.svg, and print the table of docs/simulation.md: `python -m simulation.report`, some minutes."""

from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from engine.files.writing import replacing

from .__main__ import MIXED, table
from .hardware import MACHINES, load, with_measured

FIGURE = Path(__file__).parents[2] / "docs/simulation.svg"
CORES = (1, 2, 4, 8, 16, 32, 64, 128)
LINES = (("32x128", "#2563eb"), (MIXED, "#c2410c"), ("1x512", "#16a34a"), ("1x16", "#64748b"))
"""Shapes, with the colours of their lines."""
WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 640, 300, 56, 28, 40
STYLE = """
.simulation text { font: 12px sans-serif; fill: #24292f }
.simulation .grid { stroke: #8c959f; stroke-opacity: 0.35 }
@media (prefers-color-scheme: dark) { .simulation text { fill: #e6edf3 } }
"""


def simulated(shape: str) -> list[dict]:
    """Simulate BERT-base in int8 on one socket with all numbers of cores."""
    calibration = load()
    return table("BERT-base", calibration, "int8", with_measured(MACHINES["epyc"], calibration), shape, list(CORES))


def svg(lines: dict[str, list[dict]]) -> str:
    """Draw efficiency over cores, a line for each shape."""
    right, low = WIDTH - 70, HEIGHT - BOTTOM
    top = max(1.05, *(row["efficiency"] for rows in lines.values() for row in rows))

    def place(i: int, efficiency: float) -> tuple[float, float]:
        return LEFT + (right - LEFT) * i / (len(CORES) - 1), low - (low - TOP) * efficiency / top

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="simulation" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
        f'height="{HEIGHT}" role="img"><title>Simulated efficiency over cores</title><style>{STYLE}</style>',
        f'<text x="{LEFT}" y="16">simulation: time of one core / (cores x time), BERT-base int8, one socket</text>',
    ]  # fmt: skip
    for tenth in range(0, 11, 2):
        _, y = place(0, tenth / 10)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>'
                     f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{tenth / 10:.1f}</text>')  # fmt: skip
    for i, cores in enumerate(CORES):
        parts.append(f'<text x="{place(i, 0)[0]:.1f}" y="{low + 18}" text-anchor="middle">{cores}</text>')
    parts.append(f'<text x="{(LEFT + right) / 2:.0f}" y="{HEIGHT - 6}" text-anchor="middle">cores</text>')
    for shape, colour in LINES:
        points = [place(i, row["efficiency"]) for i, row in enumerate(lines[shape])]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        nudge = 14 if shape == MIXED else 0     # its last point lies beside that of 32x128
        parts.append(f'<text x="{right + 6}" y="{points[-1][1] + 4 + nudge:.1f}" style="fill:{colour}">{shape}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def markdown(lines: dict[str, list[dict]]) -> str:
    """Format the figures as a table."""
    rows = ["| cores | " + " | ".join(shape for shape, _ in LINES) + " |", "|---" * (len(LINES) + 1) + "|"]
    for i, cores in enumerate(CORES):
        rows.append(f"| {cores} | " + " | ".join(cell(lines[shape][i]) for shape, _ in LINES) + " |")
    return "\n".join(rows)


def cell(row: dict) -> str:
    """Format efficiency, time, the share of waiting and the bytes a second from memory."""
    ms, memory = row["seconds"] * 1e3, row["memory"] / 1e9
    return f"{row['efficiency']:.2f} ({ms:,.{1 if ms < 100 else 0}f} ms, {row['waiting']:.0%}, {memory:.0f} GB/s)"


def main() -> None:
    """Simulate all lines, on two processes; write the figure and print the table."""
    with ProcessPoolExecutor(2) as processes:
        shapes = [MIXED, *(shape for shape, _ in LINES if shape != MIXED)]      # the longest first
        lines = dict(zip(shapes, processes.map(simulated, shapes), strict=True))
    with replacing(FIGURE) as file:
        file.write(svg(lines).encode())
    print(markdown(lines))


if __name__ == "__main__":
    main()
