"""Time the base shapes of several families in turns beside PyTorch, ONNX Runtime and OpenVINO.

    python asv_bench/families_peers.py --prepare                     writes the models and the files of each library
    python asv_bench/families_peers.py [--families ModernBERT ...] [--cases 8x128 1x512] [--precisions float32 ...]
        [--libraries engine PyTorch ...] [--turns 7] [--threads 2] [--layers 2]

It needs the libraries of peers/requirements.txt. Weights are random. Each family, precision and case is a run of its
own: every turn times every library for half a second, in another order than the turn before, so that other load on the
machine affects them all. peers/libraries.py says how each library is set up. Printed are the median and the least time
of a call, the time as a multiple of the engine's, the median of each turn, and the mean cosine of the token vectors to
PyTorch's in float32. A family in all precisions takes about 8 minutes once its files are made; PyTorch's compiler takes
longer the first time, and then finds its results in the folder of the models.
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from peers.libraries import LIBRARIES
from peers.measure import PRECISIONS, REFERENCE, Clock, Group, names
from peers.work import SHAPES
from peers.worker import Failed, Worker

from engine.backends.peak import forward_flops
from engine.families import get_family

ROOT = Path(__file__).parents[1] / "build/peers/families"
PEERS = ("engine", "ONNX Runtime", "OpenVINO", "PyTorch", "PyTorch, compiled")
PREPARED = ("ONNX Runtime", "OpenVINO")
"""The libraries that read files of their own."""
WORDS = 30528
"""Rows of every word table: the sizes of the tables do not change the time, and the case's ids are below 30,000."""

FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "BERT": ("BertModel", {}),
    "MPNet": ("MPNetModel", {"max_position_embeddings": 514}),
    "ModernBERT": ("ModernBertModel", {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1,
                                       "sep_token_id": 2}),
    "Nomic": ("NomicBertModel", {}),
    "GTE": ("GteModel", {}),
    "ESM-2 35M": ("EsmModel", {"hidden_size": 480, "num_hidden_layers": 12, "num_attention_heads": 20,
                               "intermediate_size": 1920, "position_embedding_type": "rotary", "token_dropout": True,
                               "emb_layer_norm_before": False, "pad_token_id": 1, "mask_token_id": 32}),
}  # fmt: skip
"""The class of each family in transformers, and what its config says beside the defaults. These are the base shape."""


def write_folder(folder: Path, family: str, layers: int | None) -> None:
    """Write the model of a family with random weights as folder/hf, if it does not exist yet."""
    if (folder / "hf" / "model.safetensors").exists():
        return
    import torch
    import transformers

    name, changes = FAMILIES[family]
    kind = getattr(transformers, name)
    config = kind.config_class(vocab_size=WORDS, **changes, **({"num_hidden_layers": layers} if layers else {}))
    torch.manual_seed(0)
    partial = folder / "partial"
    shutil.rmtree(partial, ignore_errors=True)
    kind(config).save_pretrained(partial)
    partial.rename(folder / "hf")


def prepare(folder: Path, family: str, arguments: argparse.Namespace) -> None:
    """Write the model of a family and the files of each library, and say how long each took."""
    write_folder(folder, family, arguments.layers)
    for library in [name for name in arguments.libraries if name in PREPARED]:
        begun = time.perf_counter()
        with closing(Worker(library, "float32", folder, arguments.threads)) as worker:
            try:
                worker.call("prepare")
                print(f"{family}: files of {library} after {time.perf_counter() - begun:.0f} s", flush=True)
            except Failed as error:
                print(f"{family}: {library} cannot be prepared: {error}", flush=True)


def flops(folder: Path, case: str) -> float:
    """Return the operations of a case."""
    values = json.loads((folder / "hf" / "config.json").read_text(encoding="utf-8"))
    B, T = SHAPES[case]
    return forward_flops(get_family(values).read_encoder(values).config, [T] * B)


def measure(folder: Path, family: str, arguments: argparse.Namespace) -> None:
    """Time all libraries on a family, and print a line for each, the fastest first."""
    with closing(Worker(REFERENCE, "float32", folder, arguments.threads)) as worker:
        worker.call("load")
        references = {case: worker.call("first", case) for case in arguments.cases}
    for precision in arguments.precisions:
        with ExitStack() as stack:
            clock = Clock(stack.enter_context(closing(Worker("engine", "float32", folder, arguments.threads))))
            group = Group(folder, precision, names(precision, arguments.libraries), arguments.threads, stack)
            for case in arguments.cases:
                cells = group.run(case, flops(folder, case), references[case], clock, arguments.turns, 30)
                report(f"{family:<11}{precision:<9}{case:<7}", cells)


def report(title: str, cells: dict[str, dict]) -> None:
    """Print the cells of a case: numbers, or why there are none."""
    own = cells.get("engine", {}).get("median")
    for name, cell in sorted(cells.items(), key=lambda item: item[1].get("median", float("inf"))):
        if "median" not in cell:
            print(f"{title}{name:<34} {cell.get('why', 'did not run')}", flush=True)
            continue
        each = " ".join(f"{1e3 * middle:.1f}" for middle in cell["turns"])
        ratio = f"{cell['median'] / own:5.2f} of the engine's" if own else ""
        print(f"{title}{name:<34}{1e3 * cell['median']:8.1f} ms median{1e3 * cell['minimum']:8.1f} ms least   "
              f"{ratio}   cosine {cell['cosine']:.5f}   turns {each}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--prepare", action="store_true", help="write the files of the libraries, and time nothing")
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--layers", type=int, help="fewer layers than the base shape, to try the script")
    parser.add_argument("--cases", nargs="+", choices=list(SHAPES), default=["8x128", "1x512"])
    for option, choices, default in (("families", FAMILIES, FAMILIES), ("precisions", PRECISIONS, PRECISIONS),
                                     ("libraries", LIBRARIES, PEERS)):  # fmt: skip
        parser.add_argument(f"--{option}", nargs="+", choices=list(choices), default=list(default), metavar="NAME",
                            help=f"only these: {', '.join(choices)}")  # fmt: skip
    arguments = parser.parse_args()
    root = ROOT / (f"{arguments.layers}-layers" if arguments.layers else "base")
    for family in arguments.families:
        folder = root / family
        folder.mkdir(parents=True, exist_ok=True)
        if arguments.prepare:
            prepare(folder, family, arguments)
        elif not (folder / "hf").exists():
            parser.error(f"the model of {family} is missing; run this first with --prepare")
        else:
            measure(folder, family, arguments)


if __name__ == "__main__":
    main()
