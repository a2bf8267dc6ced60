"""Format the results as text."""

from .goals import goal_lines

UNITS = {"rows": "GB/s", "encoder": "sequences/s", "window": "TFLOP/s as of all keys", "operation": "TFLOP/s",
         "attention": "TFLOP/s", "linear": "TFLOP/s"}
"""Unit of each section's speeds."""


def speed(work: float, cell: dict) -> float | None:
    """Return the work per second by the median time, or None if nothing was timed."""
    return work / cell["median"] if "median" in cell else None


def text(numbers: dict) -> str:
    """Format all numbers as Markdown."""
    machine = ", ".join(f"{name} {value}" for name, value in numbers["machine"].items())
    lines = ["# The engine on a GPU", "", machine, "", *check_lines(numbers["checks"]), "", *goal_lines(numbers), ""]
    lines += [f"- {run}: {result}" for run, result in numbers["sanitizer"].items()]
    for section, unit in UNITS.items():
        if rows := numbers.get(section):
            lines += ["", f"## {section}, {unit} by median time (by best time)", "", *grid(rows)]
    if numbers["left_out"]:
        lines += ["", "Left out, as time ran out: " + ", ".join(numbers["left_out"])]
    return "\n".join(lines) + "\n"


def check_lines(groups: dict[str, list[dict]]) -> list[str]:
    """List how many checks of each group hold, and each check that fails."""
    lines = ["Checks against float64 that hold:"]
    for group, rows in groups.items():
        lines.append(f"- {group}: {sum(row['ok'] for row in rows)} of {len(rows)}")
        for row in rows:
            if not row["ok"]:
                why = row.get("why") or f"error {row['error']:.2e}, above {row['bound']:.0e}"
                lines.append(f"  - WRONG: {row['name']}: {why}")
    return lines


def grid(rows: list[dict]) -> list[str]:
    """Format a Markdown table, a row per case and a column per contender; the fastest of a case is bold."""
    names = list(dict.fromkeys(name for row in rows for name in row["cells"]))
    lines = ["| | " + " | ".join(names) + " |", "|---|" + "---|" * len(names)]
    for row in rows:
        speeds = {name: speed(row["work"], cell) for name, cell in row["cells"].items()}
        best = max((s for s in speeds.values() if s is not None), default=None)
        cells = [cell_text(row["work"], row["cells"].get(name, {}), best) for name in names]
        lines.append(f"| {row['case']} | " + " | ".join(cells) + " |")
    return lines


def cell_text(work: float, cell: dict, best: float | None) -> str:
    if "why" in cell:
        return cell["why"].split("\n")[0][:60].replace("|", "\\|")
    own = speed(work, cell)
    if own is None:
        return ""
    middle = f"{own:,.1f}"
    return f"{f'**{middle}**' if own == best else middle} ({work / cell['minimum']:,.1f})"
