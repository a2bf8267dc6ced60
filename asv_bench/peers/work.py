"""Define the work: two models, five uniform shapes, real text of mixed lengths, and the rows of a job."""

import ast
import json
import shutil
import sysconfig
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import numpy as np
from benchmarks.models import CONFIGS, random_model, write_hf_folder

SHAPES = {"1x16": (1, 16), "1x128": (1, 128), "1x512": (1, 512), "8x128": (8, 128), "32x128": (32, 128),
          "8x256": (8, 256)}
TEXT = "text"
CASES = {"BERT-base": [*SHAPES][:5], "MiniLM": [*[*SHAPES][:5], TEXT]}
"""The cases of each model. Random weights have no tokenizer of their own, so only MiniLM runs text."""

BATCH = 32
"""Sentences per batch of text, for libraries that are given padded batches."""
SENTENCES = 512
MAX_TOKENS = 256
"""Largest number of tokens of a sentence, from all-MiniLM-L6-v2's own settings."""
MODULES = (
    "argparse", "ast", "calendar", "collections", "configparser", "contextlib", "dataclasses", "datetime", "decimal",
    "difflib", "doctest", "email/message", "enum", "fractions", "functools", "gettext", "http/cookiejar", "inspect",
    "ipaddress", "json", "logging", "mailbox", "optparse", "pathlib", "pdb", "pickle", "random", "shutil", "smtplib",
    "statistics", "string", "subprocess", "tarfile", "tempfile", "textwrap", "threading", "tokenize", "traceback",
    "typing", "unittest/case", "urllib/request", "zipfile",
)  # fmt: skip
"""Modules of Python's standard library whose docstrings are the text: English that is on every machine."""


def write_folders(root: Path, minilm: Path, names: Iterable[str] = CASES) -> None:
    """Write the models of these names as Hugging Face folders, root/NAME/hf, if they do not exist yet.

    minilm: the folder of the real all-MiniLM-L6-v2. BERT-base gets random weights of the scale of a real model's. It
    also gets what some converters need: MiniLM's tokenizer, and names in config.json that today's BERT no longer has.
    """
    for name in names:
        folder = root / name / "hf"
        if (folder / "done").exists():
            continue
        shutil.rmtree(folder, ignore_errors=True)
        folder.parent.mkdir(parents=True, exist_ok=True)
        if name == "MiniLM":
            shutil.copytree(minilm, folder)
        else:
            write_hf_folder(random_model(CONFIGS[name]), folder)
            config = json.loads((folder / "config.json").read_text())
            config |= {"architectures": ["BertModel"], "position_embedding_type": "absolute"}
            (folder / "config.json").write_text(json.dumps(config))
            for file in ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "special_tokens_map.json"):
                shutil.copy(minilm / file, folder)
        (folder / "done").touch()


def inputs(case: str) -> tuple[np.ndarray, np.ndarray | None]:
    """Return the token ids int64 [B,T] of a uniform case, and None as mask, because all tokens are real."""
    B, T = SHAPES[case]
    return np.random.default_rng(B * T).integers(1000, 30000, (B, T)), None


def sentences() -> list[str]:
    """Return `SENTENCES` paragraphs of prose, drawn evenly from all of `paragraphs`."""
    texts = paragraphs()
    return [texts[i * len(texts) // SENTENCES] for i in range(SENTENCES)]


def rows(count: int) -> list[str]:
    """Return different texts for a job: runs of words of the prose, each as long as a paragraph picked at random."""
    texts = paragraphs()
    words, lengths = " ".join(texts).split(), [len(text.split()) for text in texts]
    rng, found = np.random.default_rng(0), dict.fromkeys(())
    while len(found) < count:
        start, length = int(rng.integers(len(words))), lengths[rng.integers(len(lengths))]
        found[" ".join(words[start : start + length])] = None
    return list(found)


@cache
def paragraphs() -> list[str]:
    """Return the different paragraphs of prose, of at least 4 words, in the docstrings of `MODULES`."""
    library = Path(sysconfig.get_path("stdlib"))
    found: dict[str, None] = {}
    for module in MODULES:
        path = library / f"{module}.py"
        source = (path if path.exists() else library / module / "__init__.py").read_text(encoding="utf8")
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                parts = (ast.get_docstring(node) or "").split("\n\n")
                found |= dict.fromkeys(" ".join(p.split()) for p in parts if is_prose(p))
    return list(found)


def is_prose(paragraph: str) -> bool:
    """Return True if a paragraph looks like sentences, not like an example, a list or a table."""
    words = paragraph.split()
    plain = sum(word.strip(".,;:()'\"").isalpha() for word in words)
    return len(words) >= 4 and paragraph[0].isupper() and paragraph.endswith(".") and plain >= 0.8 * len(words)


def batches(texts: list[str], tokenizer) -> list[tuple[list[int], np.ndarray, np.ndarray]]:
    """Return batches (indices of texts, ids int64 [B,T], 0/1 mask int64 [B,T]), sorted by length, the longest first."""
    ids = [encoding.ids for encoding in tokenizer.encode_batch_fast(texts)]
    order = sorted(range(len(ids)), key=lambda i: -len(ids[i]))
    result = []
    for start in range(0, len(order), BATCH):
        members = order[start : start + BATCH]
        padded = np.zeros((2, len(members), len(ids[members[0]])), np.int64)
        for row, i in enumerate(members):
            padded[0, row, : len(ids[i])] = ids[i]
            padded[1, row, : len(ids[i])] = 1
        result.append((members, padded[0], padded[1]))
    return result


def mean_pool(tokens: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Return the mean of the real tokens' vectors, scaled to length 1: float32 [B,D] from [B,T,D] and mask [B,T]."""
    total = (mask[:, None, :].astype(np.float32) @ tokens)[:, 0]
    return total / np.linalg.norm(total, axis=1, keepdims=True)
