"""Format the numbers as a Markdown table and a figure."""

from .machine import LIFTED
from .measure import LONGEST, PRECISIONS
from .work import BATCH, CASES, TEXT

COLOURS = {"engine": "#c2410c", "ONNX Runtime": "#0d9488", "OpenVINO": "#7c3aed", "CTranslate2": "#ca8a04",
           "PyTorch": "#2563eb", "PyTorch, compiled": "#60a5fa", "zentorch": "#db2777",
           "sentence-transformers": "#94a3b8", "llama.cpp": "#65a30d", "sentence-transformers, pool": "#64748b",
           "Ray Data": "#0ea5e9", "fastembed": "#be123c"}  # fmt: skip


def index(all_numbers: dict[str, dict]) -> str:
    """Return the page of all CPUs: by how much the engine is ahead on each, from the numbers by their files' names."""
    cpus = sorted(all_numbers.items())
    lines = [
        "# The engine and its peers, by CPU",
        "",
        "`make peers` writes this page from the numbers beside it.",
        "",
        "Each cell shows how many times as long as the engine the fastest other library takes in this precision, by "
        "medians (and by best times). Above 1, the engine is ahead. An empty cell was not measured.",
        "",
    ]
    for model, cases in CASES.items():
        for precision in PRECISIONS:
            rows = [f"| [{name}]({name}.md) | " + " | ".join(leads) + " |"
                    for name, numbers in cpus if any(leads := leads_of(numbers, model, precision, cases))]  # fmt: skip
            if rows:
                head = ["| CPU | " + " | ".join(cases) + " |", "|---|" + "---|" * len(cases)]
                lines += [f"## {model}, {precision}", "", *head, *rows, ""]
    lines += ["## The CPUs", ""]
    lines += [f"- {name}: {m['cpu']}, {m['threads']} threads, {m['date']}."
              for name, m in ((name, numbers["machine"]) for name, numbers in cpus)]  # fmt: skip
    return "\n".join(lines) + "\n"


def leads_of(numbers: dict, model: str, precision: str, cases: list[str]) -> list[str]:
    """Return the lead of the engine in each case, "" where it was not measured."""
    rows = (row for row in numbers["rows"] if (row["model"], row["precision"]) == (model, precision))
    cells = {(row["library"], row["case"]): row for row in rows}
    return [lead(cells, case) for case in cases]


def table(numbers: dict, source: str = "peers.json") -> str:
    """Return the page of one CPU; source: the name of the file with the numbers."""
    text = numbers["text"]
    lines = [
        "# The engine and its peers",
        "",
        *origin(numbers, source),
        "",
        "Each cell shows the median time (and the best time), the speed of the median as a share of the measured "
        "peak in this precision, and the mean cosine between the vectors and those of PyTorch in float32. The "
        "fastest median is bold. The last row shows how many times as long as the engine the fastest other library "
        "takes, by medians (and by best times). Above 1, the engine is ahead.",
        "",
    ]
    for model, cases in CASES.items():
        for precision in PRECISIONS:
            rows = [r for r in numbers["rows"] if (r["model"], r["precision"]) == (model, precision)]
            if rows:
                lines += [f"## {model}, {precision}", "", *grid(rows, cases, text["sentences"]), ""]
    return "\n".join([*lines, *notes(numbers)]) + "\n"


def origin(numbers: dict, source: str) -> list[str]:
    """Say where the numbers of a page come from: the file, the machine, the versions and the other load."""
    machine = numbers["machine"]
    versions = ", ".join(f"{name} {number}" for name, number in machine["versions"].items())
    lines = [f"`make peers` writes this page from the numbers in {source}.", ""]
    if numbers["quick"]:
        lines += ["**This was a quick run, to see that everything works. Its times mean nothing.**", ""]
    lines += [f"- Machine: {machine['cpu']}, {machine['threads']} threads, {machine['date']}.",
              f"- The engine runs {machine['engine runs']}."]
    if "peak" in numbers:
        limits = ", ".join(f"{value:,.0f} in {precision}" for precision, value in numbers["peak"].items())
        lines.append(f"- Measured peak of the machine, in 10^9 operations a second: {limits}.")
    return [*lines, f"- Versions: {versions}, Python {machine['python']}.", *circumstances(machine)]


def circumstances(machine: dict) -> list[str]:
    """Say from which commit and beside how much other load numbers are; older files do not say."""
    lines = []
    if machine.get("commit"):
        lines.append(f"- Commit {machine['commit'].rstrip('+')}"
                     f"{', with changes that are not committed' * machine['commit'].endswith('+')}.")
    if machine.get("steal") is not None:
        lines.append(f"- The hypervisor gave {machine['steal']:.1%} of the CPU time to other machines.")
    return lines


def grid(rows: list[dict], cases: list[str], sentences: int) -> list[str]:
    """Format one Markdown table: a row per library, a column per case."""
    cells = {(r["library"], r["case"]): r for r in rows}
    shown = [case for case in cases if any(r["case"] == case for r in rows)]
    libraries = list(dict.fromkeys(r["library"] for r in rows))
    lines = ["| | " + " | ".join(shown) + " |", "|---|" + "---|" * len(shown)]
    for library in libraries:
        reasons = {cells[library, case]["why"] for case in shown if "why" in cells.get((library, case), {})}
        if len(reasons) == 1 and not any("median" in cells.get((library, case), {}) for case in shown):
            lines.append(f"| {library} | {escape(reasons.pop())}" + " |" * len(shown))
            continue
        texts = [cell(cells.get((library, case)), fastest(cells, case, "median"), sentences) for case in shown]
        lines.append(f"| {library} | " + " | ".join(texts) + " |")
    return [*lines, "| **ahead by** | " + " | ".join(lead(cells, case) for case in shown) + " |"]


def cell(row: dict | None, best: float, sentences: int) -> str:
    if row is None:
        return ""
    if "why" in row:
        return escape(row["why"])
    if row["case"] == TEXT:
        speed = f"{sentences / row['median']:,.0f} /s ({sentences / row['minimum']:,.0f})"
    else:
        speed = f"{row['median'] * 1e3:.2f} ms ({row['minimum'] * 1e3:.2f})"
    share = f"{row['fraction']:.0%}, " if row["fraction"] else ""
    return (f"**{speed}**" if row["median"] == best else speed) + f"<br>{share}{row['cosine']:.5f}"


def fastest(cells: dict, case: str, field: str, without: str = "") -> float:
    """Return the least time of a case, or infinity if nothing ran."""
    return min((r[field] for (name, of), r in cells.items() if of == case and name != without and field in r),
               default=float("inf"))  # fmt: skip


def lead(cells: dict, case: str) -> str:
    own, others = cells.get(("engine", case), {}), fastest(cells, case, "median", without="engine")
    if "median" not in own or others == float("inf"):
        return ""
    best = fastest(cells, case, "minimum", without="engine")
    return f"{others / own['median']:.2f} ({best / own['minimum']:.2f})"


def escape(words: str) -> str:
    return words.replace("|", "\\|")


def notes(numbers: dict) -> list[str]:
    """Describe the method of the measurement."""
    text = numbers["text"]
    lines = [
        "Every library runs in its own process. The processes take turns. After its turn, a process sleeps, and the "
        "next turn starts when its threads are at rest. In each turn the first call is not counted; a few calls "
        "after it are.",
        "A call starts with token ids in NumPy and ends with the float32 vectors of all tokens in NumPy. The share "
        "of the peak counts 2mnk operations for each GEMM, and nothing else.",
        f"Text: {text['sentences']} paragraphs from the docstrings of Python's standard library, {text['tokens']:,} "
        f"tokens (median {text['median']:.0f}, 95 % below {text['95 %']:.0f}, longest {text['longest']}). The unit is "
        "sentences a second. The tokenizer is included, and the results are pooled vectors of length 1. The other "
        f"libraries get batches of {BATCH} sentences, sorted by length. The engine and sentence-transformers make "
        "their own batches.",
        "ONNX Runtime runs the graph of its transformer optimiser. Its int8 is quantised dynamically, per channel, "
        "with weights of 7 bits where the CPU lacks VNNI, as its documents advise.",
        "OpenVINO gets the latency hint and the precision as a hint. Its int8 is that of NNCF for transformers, with "
        "SmoothQuant.",
        "CTranslate2 quantises when it loads the model.",
        "PyTorch uses SDPA in inference mode. Where it is compiled, its weights are frozen, each uniform shape is "
        "compiled for itself, and text is compiled once with dynamic shapes. zentorch is a compiler for PyTorch on "
        "CPUs with AVX-512.",
        "llama.cpp is compiled for this CPU and reads GGUF files; its int8 is Q8_0. It gets sentences by 128 tokens "
        "a call, because larger calls are slower.",
        "BERT-base has random weights of the scale of a real model. MiniLM is the real all-MiniLM-L6-v2.",
        f"A case is left out where a library would take more than {LONGEST:.0f} s a call.",
    ]
    if any(row["library"].endswith(LIFTED) for row in numbers["rows"]):
        lines.append(
            f"{LIFTED.strip(' ()')}: PyTorch computes float32 GEMMs with MKL, and MKL takes a slower path on a CPU "
            "that is not from Intel. Here a preloaded library of one line tells MKL that the CPU is from Intel. "
            "PyTorch does not do this by default."
        )
    return ["## How we measured", "", *(f"- {line}" for line in lines)]


def draw(numbers: dict, path) -> None:
    """Draw a panel for each model and precision: every library's speed as a multiple of the engine's in float32."""
    plt = pyplot()
    rows = [row for row in numbers["rows"] if "median" in row]
    base = [row for row in rows if (row["library"], row["precision"]) == ("engine", "float32")]
    own = {(row["model"], row["case"]): row["median"] for row in base}
    models = [model for model in CASES if any(row["model"] == model for row in rows)]
    precisions = [precision for precision in PRECISIONS if any(row["precision"] == precision for row in rows)]
    size = 4.2 * len(precisions), 2.9 * len(models)
    figure, panels = plt.subplots(len(models), len(precisions), figsize=size, squeeze=False, layout="constrained")
    for line, model in zip(panels, models, strict=True):
        line[0].set_ylabel("speed, engine in float32 = 1")
        for panel, precision in zip(line, precisions, strict=True):
            shown = [r for r in rows if (r["model"], r["precision"]) == (model, precision)]
            panel.set_visible(bool(shown))
            bars(panel, shown, [case for case in CASES[model] if any(r["case"] == case for r in shown)], own)
            panel.set_title(f"{model}, {precision}", loc="left", fontsize=10)
    legend = {}
    for panel in panels.flat:
        legend |= dict(zip(*reversed(panel.get_legend_handles_labels()), strict=True))
    figure.legend(legend.values(), legend.keys(), loc="outside lower center", ncols=5, frameon=False)
    figure.savefig(path, metadata={"Date": None})


def pyplot():
    """Return matplotlib.pyplot, set so that it writes a figure of the same numbers with the same bytes."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "peers", "font.family": "sans-serif", "font.size": 9,
                         "axes.spines.top": False, "axes.spines.right": False})  # fmt: skip
    from matplotlib import pyplot as plt

    return plt


def bars(panel, rows: list[dict], cases: list[str], own: dict) -> None:
    """Draw the libraries side by side in each case; a case without the engine's float32 time is left out."""
    libraries = list(dict.fromkeys(row["library"] for row in rows))
    width = 0.84 / max(1, len(libraries))
    for i, library in enumerate(libraries):
        mine = [row for row in rows if row["library"] == library and (row["model"], row["case"]) in own]
        places = [cases.index(row["case"]) + (i + 0.5) * width - 0.42 for row in mine]
        speeds = [own[row["model"], row["case"]] / row["median"] for row in mine]
        panel.bar(places, speeds, width * 0.92, label=library, color=COLOURS[library.removesuffix(LIFTED)],
                  hatch="////" if library.endswith(LIFTED) else None, edgecolor="white", linewidth=0)  # fmt: skip
    panel.axhline(1, color="#1e293b", lw=0.6)
    panel.set_xticks(range(len(cases)), cases)
    panel.tick_params(axis="x", length=0)
