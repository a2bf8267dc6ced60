"""The table of the most used checkpoints in docs/coverage.md, made from the golden models. Run this file to write it:

    python -m tests.families.coverage

checkpoints.txt lists the checkpoints with their classes. A checkpoint runs whole if there is a golden model of its
family and of its task, which the tests compare with transformers; half if the family is there and the task or
something that the list names is not; and it is refused if the engine refuses the family.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from engine.base.errors import EngineError
from engine.families import get_family
from engine.loading.left_out import TASKS
from tests.tools.encoders import module_of
from tests.tools.paths import DECODERS, ENCODERS, HEADS, ROOT

DOCUMENT = ROOT / "docs" / "coverage.md"
START, END = "<!-- made by python -m tests.families.coverage -->", "<!-- end -->"
LIST = Path(__file__).with_name("checkpoints.txt")
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "bert/alibi": {"position_embedding_type": "alibi"}, "xlm-roberta/rotary": {"position_embedding_type": "rotary"},
    "nomic_bert/moe": {"num_experts": 8, "moe_every_n_layers": 2, "moe_top_k": 2},
    "bert/remote": {"auto_map": {"AutoModel": "bert_layers.BertModel"}},
}
"""The settings of config.json that a model_type of the list stands for."""
ARRAYS = {"HF_ColBERT": ("late.npz", "stanford query"), "StaticEmbedding": ("modules.npz", "static float32"),
          "StaticModel": ("modules.npz", "static model2vec")}
"""Classes whose golden results are arrays of a file in tests/golden/heads, by the name of one of them."""
_GENERATES = ("ForConditionalGeneration", "ForCausalLM", "LMHeadModel", "MTModel")


@dataclass(frozen=True)
class Checkpoint:
    """A row of the list."""

    name: str
    group: str
    kind: str
    """Its class in transformers."""
    model_type: str
    lacks: str = ""
    refused: str = ""

    @property
    def task(self) -> str:
        """What the class is for: the task of a head, "generate" or "encode"."""
        task = next((task for end, task in TASKS.items() if self.kind.endswith(end)), None)
        return task or ("generate" if self.kind.endswith(_GENERATES) else "encode")

    @property
    def word(self) -> str:
        """Whether it runs "whole", "half" or is "refused"."""
        if self.refused:
            return "refused"
        if self.kind in ARRAYS:
            return "whole" if has_array(*ARRAYS[self.kind]) else "refused"
        values = {"model_type": self.model_type.partition("/")[0], **SETTINGS.get(self.model_type, {})}
        tasks = golden_tasks().get(module(values), frozenset())
        if not tasks:
            return "refused"
        return "whole" if self.task in tasks and not self.lacks else "half"


def module(values: dict[str, Any]) -> str:
    """Return the module of the family that reads a config.json; "" if the engine refuses it."""
    try:
        family = get_family(values)
        if family.read_encoder is not None:
            family.read_encoder(values)
    except EngineError as error:
        # Sizes may be missing from what the list says; a setting that is refused is named.
        if any(key in str(error) for key in values if key != "model_type"):
            return ""
        try:
            return module_of(get_family(values))
        except EngineError:
            return ""
    return module_of(family)


@cache
def golden_tasks() -> Mapping[str, frozenset[str]]:
    """Return the tasks of the golden models by the module of their family."""
    found: dict[str, set[str]] = {}
    for folder, task in ((ENCODERS, "encode"), (HEADS, ""), (DECODERS, "generate")):
        for path in sorted(folder.glob("*/config.json")):
            values, expected = json.loads(path.read_text(encoding="utf-8")), path.with_name("expected.json")
            own = {task}
            if not task:
                own = {json.loads(expected.read_text(encoding="utf-8"))["task"]} if expected.exists() else set()
            if values.get("is_encoder_decoder"):        # its encoder is read by the decoder
                own.add("encode")
            for name in {module(values), module({"model_type": values["model_type"]})}:
                found.setdefault(name, set()).update(own)
    found.pop("", None)
    return {name: frozenset(tasks) for name, tasks in found.items()}


@cache
def has_array(file: str, name: str) -> bool:
    """Return whether a file of golden results has an array whose name begins like this."""
    with np.load(HEADS / file) as arrays:
        return any(key.startswith(name) for key in arrays.files)


@cache
def checkpoints() -> tuple[Checkpoint, ...]:
    """Return the rows of the list."""
    rows, group = [], ""
    for line in LIST.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            group = line.removeprefix("## ")
        elif line and not line.startswith("#"):
            name, kind, model_type, *more = line.split(maxsplit=3)
            mark, _, text = (more[0] if more else "").partition(" ")
            rows.append(Checkpoint(name, group, kind, model_type, text if mark == "-" else "",
                                   text if mark == "!" else ""))
    return tuple(rows)


def tables() -> str:
    """Return the table of the groups and that of the checkpoints, as Markdown."""
    rows, words = checkpoints(), ("whole", "half", "refused")
    found = ["| group | checkpoints | whole | half | refused |", "|---|---|---|---|---|"]
    for group in [*dict.fromkeys(row.group for row in rows), None]:
        own = [row for row in rows if group in (None, row.group)]
        counts = Counter(row.word for row in own)
        found.append(f"| {group or '**all**'} | {len(own)} | " + " | ".join(str(counts[word]) for word in words) + " |")
    found += ["", "| checkpoint | class | it runs |", "|---|---|---|"]
    for row in rows:
        note = {"half": f", without {row.lacks or 'its own head'}", "refused": f": {row.refused}"}.get(row.word, "")
        found.append(f"| {row.name} | {row.kind} | {row.word}{note if note != ': ' else ''} |")
    return "\n".join(found)


def document() -> str:
    """Return docs/coverage.md with its tables made anew."""
    text = DOCUMENT.read_text(encoding="utf-8")
    before, _, rest = text.partition(START)
    return f"{before}{START}\n\n{tables()}\n\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    DOCUMENT.write_text(document(), encoding="utf-8")
