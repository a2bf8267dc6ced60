"""Measure the engine and its peers; write docs/peers/NAME.json, .md and .svg of this CPU, and the page of all CPUs.

    make peers        or, in an environment with requirements.txt and the engine, from the folder asv_bench:
    python -m peers --minilm FOLDER_OF_ALL_MINILM_L6_V2
"""

import argparse
from pathlib import Path

import numpy as np

from . import jobs_report, media_report
from .libraries import LIBRARIES, tokenizer
from .machine import short_name
from .measure import PRECISIONS, measure
from .report import draw, index, table
from .results import ROOT, Steal, machine, read, write, write_text
from .work import CASES, SHAPES, TEXT, sentences, write_folders


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minilm", type=Path, required=True, help="folder of the real all-MiniLM-L6-v2")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="few repeats: the times mean nothing")
    parser.add_argument("--keep", action="store_true", help="add to the present numbers, of the same machine")
    parser.add_argument("--files", type=Path, default=ROOT / "build/peers/models", help="folder for the models")
    parser.add_argument("--out", type=Path, default=ROOT / "docs/peers", help="folder of the tables and figures")
    parser.add_argument("--name", default=short_name(), help="name of the files of this CPU; by default %(default)s")
    for option, choices in (("models", CASES), ("precisions", PRECISIONS), ("cases", [*SHAPES, TEXT]),
                            ("libraries", LIBRARIES)):  # fmt: skip
        parser.add_argument(f"--{option}", nargs="+", choices=list(choices), default=list(choices), metavar="NAME",
                            help=f"only these: {', '.join(choices)}")  # fmt: skip
    a = parser.parse_args()
    here, path = machine(a.threads), a.out / a.name
    old = read(named(path, "json")) if a.keep else {"machine": here, "peak": {}, "rows": []}
    if why := unlike(old["machine"], here):
        parser.error(why)
    write_folders(a.files, a.minilm)
    steal = Steal()
    numbers = {"tool": "peers", "machine": here, "quick": a.quick, "text": text(a.files / "MiniLM", sentences())}
    a.out.mkdir(parents=True, exist_ok=True)
    for rows, peak in measure(a.files, a.threads, a.models, a.precisions, a.cases, a.libraries, a.quick):
        numbers |= merged(old, rows, peak)
        here["steal"] = steal.share()
        write(named(path, "json"), numbers)
    publish(a.out)


def named(path: Path, ending: str) -> Path:
    """Return the path with a dot and an ending; a name like amd-26.2 may have a dot already."""
    return path.with_name(f"{path.name}.{ending}")


def publish(folder: Path) -> None:
    """Write the table and the figure of each file of numbers in the folder, and the page of all CPUs."""
    forms = {"peers": (table, draw), "jobs": (jobs_report.table, jobs_report.draw), "media": (media_report.table, None)}
    all_numbers = {path.name.removesuffix(".json"): read(path) for path in folder.glob("*.json")}
    for name, numbers in all_numbers.items():
        write_table, write_figure = forms[numbers["tool"]]
        write_text(folder / f"{name}.md", write_table(numbers, f"{name}.json"))
        if write_figure:
            write_figure(numbers, folder / f"{name}.svg")
    pages = [form(of_tool(all_numbers, tool)) for tool, form in
             (("peers", index), ("media", media_report.index), ("jobs", jobs_report.index))]  # fmt: skip
    write_text(folder / "README.md", "".join(pages))


def of_tool(all_numbers: dict[str, dict], tool: str) -> dict[str, dict]:
    return {name: numbers for name, numbers in all_numbers.items() if numbers["tool"] == tool}


def unlike(old: dict, new: dict) -> str | None:
    """Return why numbers of two machines cannot share a table, or None when CPU model and threads are the same."""
    theirs, ours = (f"{machine['cpu']} with --threads {machine['threads']}" for machine in (old, new))
    if theirs == ours:
        return None
    return (f"--keep adds to numbers of the same machine; the present numbers are of {theirs}, and this is {ours}. "
            "Leave --keep out to measure everything again; with another --out the present numbers stay")  # fmt: skip


def merged(old: dict, rows: list[dict], peak: dict[str, float]) -> dict:
    """Return the new rows together with the old rows of other models, precisions and cases; and the higher limits."""
    measured = {(row["model"], row["precision"], row["case"]) for row in rows}
    kept = [row for row in old["rows"] if (row["model"], row["precision"], row["case"]) not in measured]
    return {"peak": {name: max(limit, old["peak"].get(name, 0)) for name, limit in peak.items()}, "rows": kept + rows}


def text(folder: Path, texts: list[str]) -> dict:
    """Describe the lengths of texts, in tokens."""
    lengths = [len(encoding.ids) for encoding in tokenizer(folder).encode_batch_fast(texts)]
    return {"sentences": len(lengths), "tokens": sum(lengths), "median": float(np.median(lengths)),
            "95 %": float(np.percentile(lengths, 95)), "longest": max(lengths)}  # fmt: skip


if __name__ == "__main__":
    main()
