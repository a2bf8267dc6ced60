"""docs/coverage.md is made from the list of today; each line of the list is held to golden models, or to a refusal."""

import json
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module

import numpy as np
import pytest

from engine import Engine, EngineError, UnsupportedError
from engine import load as load_any
from engine.families import FAMILIES
from engine.files.folder import ModelFolder
from engine.text.vocabularies import read_vocabulary

from ..tools import embedder_folders, late_folders
from ..tools.head_models import expected_of
from ..tools.paths import DECODERS, ENCODERS, HEADS, IMAGES, TOKENIZERS
from ..tools.tiny_models import safetensors, write_json
from . import coverage

pytest.importorskip("tokenizers")

ROWS = coverage.checkpoints()
VOCABULARIES = {"wordpiece": "WordPiece", "unigram": "Unigram", "bytes": "byte BPE"}
"""What the list calls the tokenizers of golden heads."""
OWN = {"marian": "Marian", "m2m_100": "M2M-100", "nllb": "NLLB", "mbart50": "mBART-50", "byt5": "ByT5", "esm": "ESM",
       "esm_without_end": "ESM"}
"""What it calls vocabularies with rules of their own, by the golden tokenizer."""
SAME = {"New": "Gte"}
"""What the names of classes begin with in remote code, and in transformers."""


COMPARED = {
    "encoders": ("families/test_vectors.py::test_a_ragged_batch_and_each_alone",
                 "families/test_images_and_sound.py::test_vectors",
                 "families/test_adapters.py::test_vectors_of_a_task"),
    "heads": ("heads/test_golden.py::test_classes", "heads/test_golden.py::test_pairs",
              "heads/test_golden.py::test_tags", "heads/test_golden.py::test_answers",
              "heads/test_golden.py::test_words"),
    "decoders": ("families/test_generating.py::test_logits_and_tokens_of_transformers",
                 "interface/test_reranker.py::test_scores_of_models_with_prompts_of_their_own"),
    "ctranslate2": ("loading/test_ctranslate2.py::test_the_logits_of_the_folder_that_was_converted",),
    "embedders": ("heads/test_modules.py::test_embedders_in_the_forms_of_published_ones",),
    "static": ("heads/test_modules.py::test_static_models",), "routes": ("heads/test_modules.py::test_routes",),
    "late": ("heads/test_late.py::test_vectors_and_scores_of_sentence_transformers",),
    "sparse": ("heads/test_sparse.py::test_the_words_of_sentence_transformers",),
    "images": ("images/test_classes.py::test_labels_and_vectors", "images/test_towers.py::test_vectors"),
    "tokenizers": ("text/test_vocabularies.py::test_the_ids_of_transformers",
                   "text/test_language_tokenizers.py::test_the_ids_and_the_texts_of_transformers"),
}
"""The tests that load the golden models of each kind and compare them with another library."""
ALONE = {"decoders": {"reranker"}, "tokenizers": {"marian"}}
"""Golden models with a file of tests each: interface/test_reranker.py and text/test_marian.py."""


@cache
def names_that_run() -> dict[str, set[str]]:
    """Return the names of the golden models that `COMPARED` has as parameters, by their kind.

    The marks of the tests are read, so that a golden model that no test runs any longer proves nothing.
    """
    found: dict[str, set[str]] = {kind: set(ALONE.get(kind, ())) for kind in COMPARED}
    for kind, tests in COMPARED.items():
        for path, _, name in (test.partition("::") for test in tests):
            module = import_module(f"tests.{path.removesuffix('.py').replace('/', '.')}")
            for mark in getattr(module, name).pytestmark:
                arguments, values = mark.args if mark.name == "parametrize" else ("", ())
                if arguments in ("name", "case"):
                    found[kind] |= set(values)
                elif arguments and arguments[0] == "name":
                    found[kind] |= {value[0] for value in values}
    return found


@dataclass(frozen=True)
class Form:
    """What a golden model proves."""

    model_type: str = ""
    kind: str = ""
    """Its class."""
    tokenizers: tuple[str, ...] = ()


@cache
def form_of(reference: str) -> Form:
    """Return the form of a golden model of the list."""
    kind, _, name = reference.partition("/")
    if kind == "tokenizers":
        data = read_vocabulary(ModelFolder(TOKENIZERS / name)) if (TOKENIZERS / name).exists() else None
        return Form(tokenizers=(OWN.get(name, ""), *([] if data is None else [_vocabulary(data.tokenizer_json)])))
    if kind == "static":
        tables = "model2vec" if name.startswith("model2vec") else ""
        return Form(tables, "StaticModel" if tables else "StaticEmbedding", ("WordPiece",))
    if kind == "routes":
        return Form()
    if kind in ("encoders", "decoders", "images", "ctranslate2"):   # the last has converted folders of decoders/
        folder = {"encoders": ENCODERS, "images": IMAGES}.get(kind, DECODERS) / name
        values, tokenizer = json.loads((folder / "config.json").read_text()), folder / "tokenizer.json"
        own = tokenizer.exists() and kind != "images"       # whose tokenizers stand in for others
        return Form(values["model_type"], *(values.get("architectures") or ()),
                    tokenizers=(_vocabulary(tokenizer.read_bytes()),) if own else ())
    head, own = name, ""
    if kind == "embedders":
        head = embedder_folders.EMBEDDERS[name].model
    elif kind == "late":
        is_older = name in late_folders.OLDER
        head = (late_folders.OLDER[name] if is_older else late_folders.CASES[name]).model
        own = "HF_ColBERT" if name.startswith("stanford") else "Model"
    elif kind == "sparse":
        head = name.split(" ")[0]
    values = json.loads((HEADS / head / "config.json").read_text())
    [architecture] = values["architectures"]
    if own == "Model":
        own = architecture.split("For")[0] + own
    return Form(values["model_type"], own or architecture, (VOCABULARIES[expected_of(head)["tokenizer"]],))


def _vocabulary(data: bytes) -> str:
    """Return what the list calls the kind of a tokenizer.json."""
    document = json.loads(data)
    return "byte BPE" if "ByteLevel" in json.dumps(document["pre_tokenizer"]) else str(document["model"]["type"])


def test_the_page_is_of_today():
    written = coverage.DOCUMENT.read_text(encoding="utf-8")
    assert written == coverage.document(), "run python -m tests.families.coverage"


def test_the_list():
    assert len({(row.checkpoint, row.list) for row in ROWS}) == len(ROWS)
    assert sum(row.list == coverage.MAIN for row in ROWS) == 269
    for row in ROWS:
        assert row.status in ("whole", "half", "refused", "wrong"), row
        assert row.downloads in coverage.TIERS, row
        assert (row.lacks == "") == (row.status == "whole"), row
        assert not row.golden or row.status in ("whole", "half"), row
        assert not row.config or row.status == "refused", row


@pytest.mark.parametrize("row", [row for row in ROWS if row.golden], ids=lambda row: row.checkpoint)
def test_a_checkpoint_that_runs_has_golden_models_of_its_form(row):
    forms = [form_of(reference) for reference in row.golden]
    for reference in row.golden:
        kind, _, name = reference.partition("/")
        assert name in names_that_run()[kind], f"no test compares {reference}"
    assert row.model_type in {form.model_type for form in forms}
    if row.form:
        assert any(reference.startswith("embedders/") and reference.endswith(f", {row.form}")
                   for reference in row.golden)
    elif row.status == "whole":
        known = next((row.kind.replace(old, new, 1) for old, new in SAME.items() if row.kind.startswith(old)), row.kind)
        assert {*known.split(", ")} <= {form.kind for form in forms}
    if row.status == "whole" and row.tokenizer:
        assert row.tokenizer in {name for form in forms for name in form.tokenizers}


BY_CONFIG = [row for row in ROWS if row.status == "refused" and row.model_type
             and (row.model_type not in FAMILIES or row.config)]
"""The refused checkpoints whose config.json alone says why."""
REFUSED = {(row.model_type, json.dumps(row.config), row.group): row for row in BY_CONFIG}
"""One of each kind of them."""


@pytest.mark.parametrize("row", REFUSED.values(), ids=lambda row: row.checkpoint)
def test_a_refusal_names_its_reason(row, tmp_path):
    write_json(tmp_path / "config.json", {"model_type": row.model_type, "architectures": [row.kind]} | row.config)
    with pytest.raises(UnsupportedError) as caught:
        (Engine.load if row.group == "vectors of sentences" else load_any)(tmp_path)
    assert any(name in str(caught.value) for name in row.config or [row.model_type])


BY_WEIGHTS = {"GLiNER", "GLiNER2", "MoiraiModule", "TiRexZero", "Gemma2Model", "ChronosBoltModelForForecasting",
              "Chronos2Model"}
"""Classes whose config.json has no model_type, or that of another model: their weights or modules are refused."""


@pytest.mark.parametrize("kind", sorted(BY_WEIGHTS))
def test_a_folder_of_another_library_is_refused(kind, tmp_path):
    row = next(row for row in ROWS if row.kind == kind)
    write_json(tmp_path / "config.json", {"architectures": [kind]} | ({"model_type": row.model_type} if row.model_type
                                                                     else {}))
    (tmp_path / "model.safetensors").write_bytes(safetensors({"head.weight": np.ones((2, 2), np.float32)}))
    with pytest.raises(EngineError):
        (Engine.load if row.group == "vectors of sentences" else load_any)(tmp_path)


def test_each_refused_checkpoint_is_tried():
    assert {row.kind for row in ROWS if row.status == "refused" and row not in BY_CONFIG} == BY_WEIGHTS


def test_what_is_not_refused_has_a_family():
    for row in ROWS:
        if row.status != "refused":
            assert row.model_type in FAMILIES or row.model_type in ("", "model2vec"), row


def test_a_line_decides_what_the_page_says():
    row = next(row for row in ROWS if row.word == "whole")
    assert coverage.weight([row], "whole") == coverage.weight([row]) > 0
    without = replace(row, golden=())
    assert (row.result, without.result) == ("whole", "runs, no golden model of this form")
    assert coverage.weight([without], "whole") == 0
    half = replace(row, status="half", lacks="its head")
    assert half.result == "half, without its head"
    head, _, *groups = coverage.counts([row, without, half])
    assert head.startswith("| group | checkpoints | whole | runs, not compared | half | refused | whole, by")
    assert groups[-1] == "| **all** | 3 | 1 | 1 | 1 | 0 | 33 % |"
