"""The golden models of heads, as folders with their tokenizers."""

import json
import shutil
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from .paths import HEADS
from .tiny_models import write_json

NAMES = tuple(sorted(path.parent.name for path in HEADS.glob("*/expected.json")))
LIMIT = 96
_NAMES_OF_TOKENS = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")


@cache
def expected_of(name: str) -> dict[str, Any]:
    """Return what the other library gives, with "tokenizer", "task" and "pairs", which describe the model."""
    return dict(json.loads((HEADS / name / "expected.json").read_text(encoding="utf-8")))


def names_of(task: str, pairs: bool = False) -> tuple[str, ...]:
    """Return the golden models with a head of a task."""
    return tuple(name for name in NAMES if expected_of(name)["task"] == task and expected_of(name)["pairs"] == pairs)


def write_folder(folder: Path, name: str, **settings: Any) -> Path:
    """Write the folder of a golden model; settings: of tokenizer_config.json."""
    shutil.copytree(HEADS / name, folder)
    kind = expected_of(name)["tokenizer"]
    shutil.copy(HEADS / "tokenizers" / f"{kind}.json", folder / "tokenizer.json")
    tokens = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]") if kind == "wordpiece" else (
        "<pad>", "<unk>", "<s>", "</s>", "<mask>")
    inputs = ["input_ids", *["token_type_ids"] * (kind == "wordpiece"), "attention_mask"]
    usual = {"model_max_length": LIMIT, "model_input_names": inputs, **dict(zip(_NAMES_OF_TOKENS, tokens, strict=True))}
    write_json(folder / "tokenizer_config.json", usual | settings)
    return folder


@cache
def folder_of(name: str) -> Path:
    """Return the folder of a golden model, which tests read and do not change."""
    return write_folder(Path(mkdtemp(prefix="heads-")) / name, name)
