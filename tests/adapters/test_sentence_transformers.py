"""Programs print the same with sentence-transformers and with the engine's classes, one import line changed."""

import inspect
from pathlib import Path

import numpy as np
import pytest

theirs = pytest.importorskip("sentence_transformers", reason="the package sentence-transformers is not installed",
                             exc_type=ImportError)
torch = pytest.importorskip("torch", exc_type=ImportError)

from engine.adapters import sentence_transformers as ours
from engine.adapters.sentence_transformers.model import REFUSED

from ..tools import minilm

pytestmark = [pytest.mark.filterwarnings("ignore:.*skiplist_words are no tokens"),
              pytest.mark.filterwarnings("ignore:Sparse"),
              pytest.mark.filterwarnings("ignore:The `default_activation_function` property was renamed")]

PROGRAMS = sorted(Path(__file__).with_name("programs").glob("*.py"))
IMPORT = "from sentence_transformers import "
WITHIN = 1e-4


def printed(source, name):
    """Return what a program prints, as objects."""
    found = []
    exec(compile(source, name, "exec"), {"__name__": "__main__", "print": lambda *values: found.extend(values)})
    assert found
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
        if one in REFUSED:
            with pytest.raises(AttributeError, match=f"no attribute '{one}'; "):
                getattr(model, one)
        else:
            getattr(model, one)


OF_THEIR_OWN = {"model_type", "model_card_data_class", "default_huggingface_organization", "is_singular_input",
                "SUPPORTED_SIMILARITY_FN_NAMES", "clear_placement_cache"}
"""Names of sentence-transformers for its own use, or for torch's memory."""


def test_constructors_take_the_same_arguments(place):
    for name, folder in (("SentenceTransformer", "static"), ("CrossEncoder", "cross-encoder"),
                         ("SparseEncoder", "splade"), ("MultiVectorEncoder", "colbert")):
        parameters = inspect.signature(getattr(theirs, name).__init__).parameters.values()
        options = {one.name: one.default for one in parameters if one.kind.name == "KEYWORD_ONLY"}
        given, bare = getattr(ours, name)(str(place / folder), **options), getattr(ours, name)(str(place / folder))
        assert options
        for setting in ("prompts", "default_prompt_name", "max_seq_length", "device"):
            assert getattr(given, setting) == getattr(bare, setting)


def test_what_is_a_tensor_there_is_one_here(place):
    """Where torch has been imported, as here."""
    model, cross = ours.SentenceTransformer(str(place / "static")), ours.CrossEncoder(str(place / "cross-encoder"))
    assert model.device == torch.device("cpu") == cross.device
    assert str(model.to(torch.device("cpu")).device) == "cpu"
    for options in ({}, {"convert_to_tensor": True}, {"convert_to_numpy": False}):
        for given in ("a good house", ["a good house", "good"]):
            found = model.encode(given, output_value=None, **options)
            for row in [found] if isinstance(given, str) else found:
                assert all(isinstance(value, torch.Tensor) for value in row.values())
            found = model.encode(given, output_value="token_embeddings", **options)
            assert all(isinstance(row, torch.Tensor) for row in ([found] if isinstance(given, str) else found))
        assert model.encode([], output_value=None, **options) == []
    assert model.encode([], convert_to_numpy=False) == cross.predict([], convert_to_numpy=False) == []
    assert cross.predict([], convert_to_tensor=True).device == cross.device
    assert type(cross.activation_fn) is torch.nn.Sigmoid
    assert ours.SparseEncoder(str(place / "splade")).encode([], convert_to_tensor=False) == []
