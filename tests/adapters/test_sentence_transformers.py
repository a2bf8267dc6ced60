"""Programs print the same with sentence-transformers and with the engine's classes, one import line changed."""

import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

theirs = pytest.importorskip("sentence_transformers", reason="the package sentence-transformers is not installed",
                             exc_type=ImportError)
torch = pytest.importorskip("torch", exc_type=ImportError)

from engine import EngineError, UnsupportedError
from engine.adapters import sentence_transformers as ours

from ..tools import minilm
from ..tools.paths import ROOT

pytestmark = [pytest.mark.filterwarnings("ignore:.*skiplist_words are no tokens"),
              pytest.mark.filterwarnings("ignore:Sparse")]

PROGRAMS = sorted(Path(__file__).with_name("programs").glob("*.py"))
IMPORT = "from sentence_transformers import "
WITHIN = 1e-4


def printed(source, name):
    """Return what a program prints, as objects."""
    found = []
    exec(compile(source, name, "exec"), {"__name__": "__main__", "print": lambda *values: found.extend(values)})
    return found


def assert_same(a, b):
    """Compare what the two programs print: numbers within 1e-4, everything else exactly."""
    if isinstance(a, (list, tuple)):
        assert len(a) == len(b)
        for one, other in zip(a, b, strict=True):
            assert_same(one, other)
    elif isinstance(a, dict):
        assert a.keys() == b.keys()
        for key in a:
            assert_same(a[key], b[key])
    elif isinstance(a, (torch.Tensor, np.ndarray, float, np.floating)):
        assert np.shape(a) == np.shape(b)
        assert np.abs(np.asarray(a, np.float64) - np.asarray(b, np.float64)).max(initial=0) <= WITHIN
    else:
        assert a == b


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_a_program_prints_the_same(path, place, monkeypatch):
    source = path.read_text(encoding="utf-8")
    if "all-MiniLM" in source and not minilm.FOLDER.exists():
        pytest.skip(minilm.MISSING)
    assert source.count(IMPORT) == 1
    monkeypatch.chdir(place)
    assert_same(printed(source, path.name), printed(source.replace(IMPORT, f"from {ours.__name__} import "), path.name))


def test_there_are_thirty_programs():
    assert len(PROGRAMS) >= 30


OUR_DEFAULTS = {"batch_size", "convert_to_numpy"}
"""Arguments whose default may differ: the engine chooses batches, and a MultiVectorEncoder returns arrays."""


@pytest.mark.parametrize("method", [
    "SentenceTransformer.encode", "SentenceTransformer.similarity", "SentenceTransformer.similarity_pairwise",
    "SentenceTransformer.truncate_embeddings", "CrossEncoder.predict", "CrossEncoder.rank", "SparseEncoder.encode",
    "SparseEncoder.decode", "SparseEncoder.sparsity", "SparseEncoder.intersection", "MultiVectorEncoder.encode"])
def test_signatures_are_the_same(method):
    name, function = method.split(".")
    expected, own = (inspect.signature(getattr(getattr(module, name), function)).parameters
                     for module in (theirs, ours))
    named = [one for one in expected.values() if one.kind.name != "VAR_KEYWORD"]
    assert [one.name for one in named] == [one.name for one in own.values() if one.kind.name != "VAR_KEYWORD"]
    for one in named:
        if one.name not in OUR_DEFAULTS:
            assert own[one.name].default == one.default


@pytest.mark.parametrize(("name", "folder"), [
    ("SentenceTransformer", "static"), ("CrossEncoder", "cross-encoder"), ("SparseEncoder", "splade"),
    ("MultiVectorEncoder", "colbert")])
def test_every_public_name_is_there_or_refused_by_name(name, folder, place):
    model, base = getattr(ours, name)(str(place / folder)), set(dir(torch.nn.Sequential))
    public = {one for one in dir(getattr(theirs, name)) if not one.startswith("_")} - base - OF_THEIR_OWN
    assert public
    for one in sorted(public):
        try:
            getattr(model, one)
        except AttributeError as error:
            assert re.search(f"no attribute '{one}'; ", str(error)), one


OF_THEIR_OWN = {"model_type", "model_card_data_class", "default_huggingface_organization", "is_singular_input",
                "SUPPORTED_SIMILARITY_FN_NAMES", "clear_placement_cache"}
"""Names of sentence-transformers for its own use, or for torch's memory."""


def test_constructors_take_the_same_arguments(place):
    for name, folder in (("SentenceTransformer", "static"), ("CrossEncoder", "cross-encoder"),
                         ("SparseEncoder", "splade"), ("MultiVectorEncoder", "colbert")):
        parameters = inspect.signature(getattr(theirs, name).__init__).parameters.values()
        options = {one.name: one.default for one in parameters if one.kind.name == "KEYWORD_ONLY"}
        getattr(ours, name)(str(place / folder), **options)


@pytest.mark.parametrize(("options", "message"), [
    ({"device": "cuda"}, "device='cuda'"), ({"backend": "onnx"}, "backend='onnx'"),
    ({"modules": []}, "modules of torch"), ({"config_kwargs": {"x": 1}}, "config_kwargs"),
    ({"trust_remote_code": True}, "trust_remote_code"), ({"processor_kwargs": {"padding_side": "left"}}, "padding_side"),
    ({"model_kwargs": {"device_map": "cuda:0"}}, "device_map"), ({"default_prompt_name": "x"}, "default_prompt_name"),
    ({"similarity_fn_name": "maxsim"}, "similarity maxsim"), ({"model_card_data": 3}, "model_card_data")])
def test_constructors_refuse_by_name(options, message, place):
    with pytest.raises(EngineError, match=message):
        ours.SentenceTransformer(str(place / "static"), **options)


def test_calls_refuse_by_name(place):
    model = ours.SentenceTransformer(str(place / "static"))
    for options, message in (({"device": ["cuda:0"]}, "device="), ({"pool": {"processes": [1]}}, "pool must come"),
                             ({"processing_kwargs": {"text": {}}}, "processing_kwargs"), ({"unknown": 1}, "unknown"),
                             ({"prompt_name": "none"}, "no prompt called 'none'")):
        with pytest.raises(EngineError, match=message):
            model.encode(["a"], **options)
    for name in ("fit", "save_pretrained", "push_to_hub", "half", "cuda", "forward"):
        with pytest.raises(AttributeError, match=f"no attribute '{name}'; "):
            getattr(model, name)
    for call in (lambda: model[0], lambda: model({})):
        with pytest.raises(UnsupportedError, match="no modules of torch"):
            call()
    late = ours.MultiVectorEncoder(str(place / "colbert"))
    for options in ({"output_value": None}, {"token_pooling": 3}):
        with pytest.raises(UnsupportedError, match=next(iter(options))):
            late.encode(["a"], **options)


WITHOUT_TORCH = """
import sys
from engine import UnsupportedError
from engine.adapters.sentence_transformers import CrossEncoder, MultiVectorEncoder, SentenceTransformer, SparseEncoder

dense, sparse, late = SentenceTransformer("static"), SparseEncoder("splade"), MultiVectorEncoder("colbert")
vectors = dense.encode(["a", "b"])
assert dense.similarity(vectors, vectors).shape == (2, 2)
words = sparse.encode(["a good house", "good"], convert_to_tensor=False)
assert sparse.similarity(words, words).shape == (2, 2) and len(sparse.decode(words, top_k=2)[1]) <= 2
assert sparse.sparsity(words)["active_dims"] > 0 and sparse.intersection(words[1], words).shape == words.shape
assert late.similarity(late.encode_query(["a"]), late.encode_document(["a", "b"])).shape == (1, 2)
assert CrossEncoder("cross-encoder").rank("a", ["b", "a"], top_k=1)
assert "torch" not in sys.modules and "sentence_transformers" not in sys.modules
sys.modules["torch"] = None
for call in (lambda: dense.encode(["a"], convert_to_tensor=True), lambda: sparse.encode(["a"]),
             lambda: late.encode(["a"], convert_to_numpy=False)):
    try:
        call()
    except UnsupportedError as error:
        assert "need the package torch" in str(error)
    else:
        raise AssertionError("no error")
"""


def test_torch_is_imported_only_for_tensors(place):
    subprocess.run([sys.executable, "-c", WITHOUT_TORCH], cwd=place, check=True,
                   env=os.environ | {"PYTHONPATH": str(ROOT)})
