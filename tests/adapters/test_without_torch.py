"""The classes of sentence-transformers, without that package and without torch: results, and what they refuse."""

import os
import pickle
import subprocess
import sys
from unittest.mock import patch

import numpy as np
import pytest

from engine import EngineError, UnsupportedError
from engine.adapters import sentence_transformers as ours

from ..tools.head_models import write_folder
from ..tools.late_folders import write_late
from ..tools.module_folders import write_static
from ..tools.paths import ROOT

pytest.importorskip("tokenizers")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Return the folder with a model for each class."""
    folder = tmp_path_factory.mktemp("models")
    write_static(folder / "static", "prompted")
    write_folder(folder / "splade", "bert_fill_mask")
    write_folder(folder / "cross-encoder", "bert_pairs")
    write_folder(folder / "three", "bert_pairs_three")
    write_late(folder / "colbert", "no mask")
    return folder


@pytest.mark.parametrize(("options", "message"), [
    ({"device": "cuda"}, "device='cuda'"), ({"backend": "onnx"}, "backend='onnx'"),
    ({"modules": []}, "modules of torch"), ({"config_kwargs": {"x": 1}}, "config_kwargs"),
    ({"trust_remote_code": True}, "trust_remote_code"),
    ({"processor_kwargs": {"padding_side": "left"}}, "padding_side"),
    ({"model_kwargs": {"device_map": "cuda:0"}}, "device_map"),
    ({"default_prompt_name": "x"}, "Default prompt name 'x' not found"),
    ({"prompts": ["x"]}, "prompts must be a dict"),
    ({"similarity_fn_name": "maxsim"}, "similarity maxsim"), ({"model_card_data": 3}, "model_card_data")])
def test_constructors_refuse_by_name(options, message, place):
    with pytest.raises(EngineError, match=message):
        ours.SentenceTransformer(str(place / "static"), **options)


@pytest.mark.parametrize(("name", "asked"), [
    ("all-MiniLM-L6-v2", "sentence-transformers/all-MiniLM-L6-v2"), ("intfloat/e5-small-v2", "intfloat/e5-small-v2"),
    ("missing.npz", "missing.npz"), ("tests", "tests"), ("", "")])
def test_a_short_name_is_one_of_sentence_transformers(name, asked, monkeypatch):
    def load(path, **options):
        raise EngineError(f"asked for {path}.")

    monkeypatch.chdir(ROOT)
    monkeypatch.setattr("engine.adapters.sentence_transformers.model.Engine.load", load)
    with pytest.raises(EngineError, match=f"asked for {asked}\\.$"):
        ours.SentenceTransformer(name)


def test_calls_refuse_by_name(place):
    model = ours.SentenceTransformer(str(place / "static"))
    for options, message in (({"device": ["cuda:0"]}, "device="), ({"pool": {"processes": [1]}}, "pool must come"),
                             ({"processing_kwargs": {"text": {}}}, "processing_kwargs"), ({"unknown": 1}, "unknown"),
                             ({"prompt_name": "none"}, "Prompt name 'none' not found .* keys .'query', 'document'"),
                             ({"precision": "half"}, "Precision 'half' is not supported")):
        with pytest.raises(EngineError, match=message):
            model.encode(["a"], **options)
    for name in ("fit", "save_to_hub", "push_to_hub", "half", "cuda", "forward"):
        with pytest.raises(AttributeError, match=f"no attribute '{name}'; "):
            getattr(model, name)
    for call in (lambda: model[0], lambda: model({})):
        with pytest.raises(UnsupportedError, match="no modules of torch"):
            call()
    late = ours.MultiVectorEncoder(str(place / "colbert"))
    for options in ({"output_value": None}, {"token_pooling": 3}):
        with pytest.raises(UnsupportedError, match=next(iter(options))):
            late.encode(["a"], **options)


def test_arguments_of_queries_and_documents_reach_encode_by_name(place):
    model = ours.SentenceTransformer(str(place / "static"))
    model.prompts = {"query": "Anna: ", "passage": "in ", "corpus": "of ", "mine": "Chen: "}
    with patch.object(model, "encode", autospec=True) as encode:
        model.encode_query("a", normalize_embeddings=True)
        encode.assert_called_with(inputs="a", prompt_name="query", prompt=None, normalize_embeddings=True, task="query")
        model.encode_query(sentences=["a"], prompt="Bilal: ")
        encode.assert_called_with(inputs=["a"], prompt_name=None, prompt="Bilal: ", task="query")
        model.encode_query("a", "mine", None, 8, False)
        encode.assert_called_with(inputs="a", prompt_name="mine", prompt=None, batch_size=8, show_progress_bar=False,
                                  task="query")
        model.encode_document("a")
        encode.assert_called_with(inputs="a", prompt_name="passage", prompt=None, task="document")
        model.prompts = {"corpus": "of "}
        model.encode_document("a")
        encode.assert_called_with(inputs="a", prompt_name="corpus", prompt=None, task="document")
        model.prompts = {}
        model.encode_document("a")
        encode.assert_called_with(inputs="a", prompt_name=None, prompt=None, task="document")
    with pytest.raises(TypeError, match="too many positional arguments"):
        model.encode_query("a", *[None] * 30)


def test_nothing_gives_what_sentence_transformers_gives(place):
    assert ours.SparseEncoder(str(place / "splade")).encode([], convert_to_tensor=False) == []
    assert ours.SparseEncoder(str(place / "splade")).encode(
        [], convert_to_tensor=False, convert_to_sparse_tensor=False) == []
    assert ours.CrossEncoder(str(place / "cross-encoder")).predict([]).shape == (0,)
    assert ours.SentenceTransformer(str(place / "static")).encode([], output_value=None) == []


def test_the_function_of_the_scores(place):
    model, pair = ours.CrossEncoder(str(place / "cross-encoder")), [("a", "good")]
    with pytest.warns(DeprecationWarning, match="`default_activation_function` property was renamed"):
        by_earlier_name = model.default_activation_function
    assert repr(by_earlier_name) == repr(model.activation_fn) == repr(model.get_default_activation_fn())
    scores = model.predict(pair)
    model.activation_fn = "tanh"
    assert model.activation_fn == "tanh"
    assert np.array_equal(model.predict(pair), model.engine.predict(pair, activation_fn="tanh"))
    model.activation_fn = None
    assert np.array_equal(model.predict(pair), scores)
    with pytest.raises(ValueError, match=r"rank\(\) only works for models with num_labels=1.*has 3 labels"):
        ours.CrossEncoder(str(place / "three")).rank("a", ["good"])


def test_eight_bits_take_ranges(place):
    model = ours.SentenceTransformer(str(place / "static"))
    vectors = model.encode(["a", "good", "a house"])
    options = {"precision": "int8", "ranges": np.stack([vectors.min(axis=0), vectors.max(axis=0)])}
    assert np.array_equal(model.encode("good", **options), model.encode(["a", "good"], **options)[1])


def test_a_pickle_keeps_the_settings(place):
    model = ours.SentenceTransformer(str(place / "static"), prompts={"query": "Chen: "}, truncate_dim=4)
    model.max_seq_length, model.similarity_fn_name = 5, "dot"
    again, text = pickle.loads(pickle.dumps(model)), "Anna lives in Berlin and works for Bilal."
    assert np.array_equal(again.encode_query(text), model.encode_query(text))
    assert (again.max_seq_length, again.similarity_fn_name, again.truncate_dim) == (5, "dot", 4)


WITHOUT_TORCH = """
import sys
from engine import UnsupportedError
from engine.adapters.sentence_transformers import CrossEncoder, MultiVectorEncoder, SentenceTransformer, SparseEncoder

assert not any(name in sys.modules for name in ("torch", "sentence_transformers"))
dense, sparse, late = SentenceTransformer("static"), SparseEncoder("splade"), MultiVectorEncoder("colbert")
vectors = dense.encode(["a", "b"])
assert dense.similarity(vectors, vectors).shape == (2, 2)
words = sparse.encode(["a good house", "good"], convert_to_tensor=False)
assert sparse.similarity(words, words).shape == (2, 2) and len(sparse.decode(words, top_k=2)[1]) <= 2
assert sparse.sparsity(words)["active_dims"] > 0 and sparse.intersection(words[1], words).shape == words.shape
assert late.similarity(late.encode_query(["a"]), late.encode_document(["a", "b"])).shape == (1, 2)
cross = CrossEncoder("cross-encoder")
assert cross.rank("a", ["b", "a"], top_k=1)
assert cross.activation_fn == "sigmoid" and dense.device == "cpu" and dense.device.type == "cpu"
assert not hasattr(dense.encode("a", output_value=None)["sentence_embedding"], "cpu")
assert "torch" not in sys.modules and "sentence_transformers" not in sys.modules
sys.modules["torch"] = None
for call in (lambda: dense.encode(["a"], convert_to_tensor=True), lambda: sparse.encode(["a"]),
             lambda: late.encode(["a"], convert_to_numpy=False),
             lambda: dense.encode(["a"], output_value=None, convert_to_tensor=True)):
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
