"""Format the numbers of whole jobs as a Markdown table and a figure."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from typing import NamedTuple

from .report import COLOURS, escape, origin, pyplot


class Column(NamedTuple):
    """A number of a job: how to compute it from one turn, and how to show it."""

    title: str
    of: Callable[[dict, dict], float | None]
    """The number of a turn and of what `numbers["job"]` says; None where there is none."""
    shown: str
    """The format of the number."""
    best: Callable | None
    """`max` or `min`; None for a number that is no advantage."""


COLUMNS = {
    "rate": Column("rows/s", lambda turn, job: job["rows"] / turn["wall"], "{:,.1f}", max),
    "steady": Column("rows/s after the start", lambda turn, job: (job["rows"] - job["few"]) /
                     (turn["wall"] - turn["start"]), "{:,.1f}", max),
    "start": Column("start", lambda turn, job: turn["start"], "{:.1f} s", min),
    "first": Column("first file", lambda turn, job: turn["first"], "{:.1f} s", None),
    "cpu": Column("CPU time", lambda turn, job: turn["cpu"], "{:,.1f} s", min),
    "memory": Column("memory", lambda turn, job: turn["memory"] / 1e6, "{:,.0f} MB", min),
    "moved": Column("read and written", lambda turn, job: turn["moved"] / 1e6, "{:,.0f} MB", min),
    "others": Column("CPU time of others", lambda turn, job: turn["others"], "{:,.1f} s", None),
    "difference": Column("difference", lambda turn, job: turn["difference"], "{:.1e}", None),
}  # fmt: skip
DRAWN = {"rate": "rows a second", "cpu": "CPU time, s", "memory": "memory, MB"}


def medians(numbers: dict) -> dict[str, dict[str, float | None]]:
    """Return the median over the turns of each column, by library; without libraries that have no numbers."""
    found = {}
    for row in numbers["rows"]:
        if "turns" in row:
            values = {name: [column.of(turn, numbers["job"]) for turn in row["turns"]]
                      for name, column in COLUMNS.items()}
            known = {name: [value for value in v if value is not None] for name, v in values.items()}
            found[row["library"]] = {name: median(v) if v else None for name, v in known.items()}
    return found


def lead(found: dict, name: str) -> float | None:
    """Return how many times as good as the best other library the engine is; None without both of them."""
    best, others = COLUMNS[name].best, [values[name] for library, values in found.items() if library != "engine"]
    if best is None or not others or "engine" not in found:
        return None
    own, other = found["engine"][name], best(others)
    return own / other if best is max else other / own


def table(numbers: dict, source: str) -> str:
    """Return the page of the jobs of one CPU; source: the name of the file with the numbers."""
    job, found = numbers["job"], medians(numbers)
    lines = [
        "# Whole jobs: the engine and its peers",
        "",
        *origin(numbers, source),
        "",
        f"The job: {job['rows']:,} texts in a file of Parquet become vectors of all-MiniLM-L6-v2 in float32, in "
        f"Parquet again. Each cell shows the median of {turns(numbers)}, and the best of each column is bold. "
        "The last row shows how many times as good as the best other library the engine is. Above 1, the engine is "
        "ahead.",
        "",
        f"![Rows a second, CPU time and memory of each library]({source.removesuffix('json')}svg)",
        "",
        "| | " + " | ".join(column.title for column in COLUMNS.values()) + " |",
        "|---|" + "---|" * len(COLUMNS),
    ]
    for row in numbers["rows"]:
        library = row["library"]
        cells = [cell(found, library, name) for name in COLUMNS] if library in found else [escape(row["why"])]
        lines.append(f"| {library} | " + " | ".join(cells) + " |" * (1 + len(COLUMNS) - len(cells)))
    leads = [lead(found, name) for name in COLUMNS]
    lines.append("| **ahead by** | " + " | ".join("" if ahead is None else f"{ahead:.2f}" for ahead in leads) + " |")
    return "\n".join([*lines, "", *notes(numbers)]) + "\n"


def turns(numbers: dict) -> str:
    """Say how many turns the libraries had."""
    counts = sorted({len(row["turns"]) for row in numbers["rows"] if "turns" in row})
    return " or ".join(map(str, counts)) + (" turn" if counts == [1] else " turns")


def cell(found: dict, library: str, name: str) -> str:
    column, value = COLUMNS[name], found[library][name]
    if value is None:
        return ""
    shown = column.shown.format(value)
    best = column.best is not None and value == column.best(values[name] for values in found.values())
    return f"**{shown}**" if best else shown


def notes(numbers: dict) -> list[str]:
    """Describe the method of the measurement."""
    job = numbers["job"]
    return [
        "## How we measured",
        "",
        "- Each library does the job in a new process, for which only the page cache is warm. They take turns, and "
        "every second turn has the reverse order. The process that measures looks from outside, ten times a second, "
        "at that process and all that it starts.",
        f"- The start is a job of {job['few']} rows, from the start of its process to its end. Rows a second after the "
        "start are the other rows, divided by the rest of the time.",
        "- The first file is the time until a complete file of results lies in the output folder.",
        "- CPU time is that of all processes of the job. Memory is the most that they hold at one time, by looks at "
        "every half second; a page that several of them share counts once. Bytes read and written are those of calls "
        "on files, pipes and sockets; mapped files and shared memory are not in it.",
        "- CPU time of others is what all other programs took meanwhile, with that of the process that measures. Times "
        "mean little where it is large.",
        "- The difference is the largest one between a number of a vector and the engine's.",
        f"- Texts: runs of words from the docstrings of Python's standard library, {job['tokens']:,} tokens (median "
        f"{job['median']:.0f}, 95 % below {job['95 %']:.0f}, longest {job['longest']}). No text is there twice.",
        *(f"- {row['library']}: {row['settings']}" for row in numbers["rows"]),
    ]


def index(all_numbers: dict[str, dict]) -> str:
    """Return the section of the page of all CPUs about jobs; "" without numbers."""
    if not all_numbers:
        return ""
    names = ("rate", "steady", "cpu", "memory")
    lines = ["", "## Whole jobs", "", "Files of texts to files of vectors, from the start of a process to its end: how "
             "many times as good as the best other library the engine is.", "",
             "| CPU | " + " | ".join(COLUMNS[name].title for name in names) + " |", "|---|" + "---|" * len(names)]
    for name, numbers in sorted(all_numbers.items()):
        found = medians(numbers)
        cells = ["" if (ahead := lead(found, column)) is None else f"{ahead:.2f}" for column in names]
        lines.append(f"| [{name}]({name}.md) | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def draw(numbers: dict, path) -> None:
    """Draw a panel for each column of `DRAWN`, with a bar for each library."""
    plt, found = pyplot(), medians(numbers)
    figure, panels = plt.subplots(1, len(DRAWN), figsize=(10, 0.6 + 0.32 * len(found)), sharey=True,
                                  layout="constrained")  # fmt: skip
    libraries = list(reversed(found))
    for panel, (name, title) in zip(panels, DRAWN.items(), strict=True):
        values = [found[library][name] for library in libraries]
        shown = panel.barh(libraries, values, color=[COLOURS[library] for library in libraries])
        panel.bar_label(shown, [f"{value:,.0f}" for value in values], padding=3)
        panel.margins(x=0.15)
        panel.tick_params(axis="y", length=0)
        panel.set_title(title, loc="left", fontsize=10)
    figure.savefig(path, metadata={"Date": None})
