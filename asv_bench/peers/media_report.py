"""Format the numbers of images and speech as a Markdown table."""

from __future__ import annotations

from .report import origin


def table(numbers: dict, source: str) -> str:
    """Return the page of one CPU; source: the name of the file with the numbers."""
    libraries = list(dict.fromkeys(row["library"] for row in numbers["rows"]))
    lines = ["# Images and speech: the engine and its peers", "", *origin(numbers, source), "",
             "`cd asv_bench; python -m peers.media` measures these models: their shapes, with random weights. All "
             "libraries get the same pixels or samples and give the vectors of all tokens. Each cell shows the median "
             "time of a call in milliseconds (and the best time); the fastest median is bold. The last column shows "
             "how many times as long as the engine the fastest other library takes, by medians (and by best times). "
             "Above 1, the engine is ahead. ONNX Runtime quantises the products of matrices in int8, OpenVINO what "
             "NNCF chooses.",
             "", f"| | {' | '.join(libraries)} | ahead |", "|---|" + "---:|" * (len(libraries) + 1)]  # fmt: skip
    for (case, precision), cells in cases(numbers).items():
        fastest = min(cell["median"] for cell in cells.values())
        shown = [f"| {case}, {precision}"]
        for library in libraries:
            cell = cells.get(library)
            text = "" if cell is None else f"{1000 * cell['median']:,.1f} ({1000 * cell['minimum']:,.1f})"
            shown.append(f"**{text}**" if cell is not None and cell["median"] == fastest else text)
        lines.append(f"{' | '.join(shown)} | {lead(cells)} |")
    return "\n".join(lines) + "\n"


def index(all_numbers: dict[str, dict]) -> str:
    """Return the part of the page of all CPUs about these models; nothing without numbers."""
    if not all_numbers:
        return ""
    rows = list(dict.fromkeys(key for numbers in all_numbers.values() for key in cases(numbers)))
    lines = ["", "## Images and speech", "", f"| CPU | {' | '.join(', '.join(key) for key in rows)} |",
             "|---|" + "---|" * len(rows)]  # fmt: skip
    for name, numbers in sorted(all_numbers.items()):
        found = cases(numbers)
        cells = [lead(found[key]) if key in found else "" for key in rows]
        lines.append(f"| [{name.removesuffix('-media')}]({name}.md) | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def cases(numbers: dict) -> dict[tuple[str, str], dict[str, dict]]:
    """Return the cells with times of each case and precision, by library."""
    found: dict[tuple[str, str], dict[str, dict]] = {}
    for row in numbers["rows"]:
        if "median" in row:
            found.setdefault((row["row"], row["precision"]), {})[row["library"]] = row
    return found


def lead(cells: dict[str, dict]) -> str:
    """Return how many times as long as the engine the fastest other library takes; "" without both of them."""
    others = [cell for library, cell in cells.items() if library != "engine"]
    if not others or "engine" not in cells:
        return ""
    median, best = (min(cell[name] for cell in others) / cells["engine"][name] for name in ("median", "minimum"))
    return f"{median:.2f} ({best:.2f})"
