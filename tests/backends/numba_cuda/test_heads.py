"""Test what surrounds an encoder with backend="cuda" on the emulated device: heads, modules, routes, comparisons.

The encoders of most tests are the reference's, because whole passes take seconds in the emulator and `test_plan.py`
proves them: what is multiplied outside of the encoder runs in the emulator.
"""

import numpy as np
import pytest

from engine import Engine, InputError, UnsupportedError
from engine.backends import numba_cuda
from engine.backends.reference import ReferenceBackend
from engine.model.head import HeadConfig, HeadLinear
from engine.model.run_config import RunConfig
from engine.weights.head import Head

from ...tools import late_folders
from ...tools.encoders import engine_of
from ...tools.golden_models import GOLDEN, load
from ...tools.head_models import expected_of, folder_of
from ...tools.m3_folders import folder_of_m3
from ...tools.module_folders import write_chain, write_router
from ...tools.tiny_models import random_model
from ...tools.tiny_text import tiny_text

pytest.importorskip("tokenizers")
pytestmark = pytest.mark.filterwarnings("ignore:.* of skiplist_words are no tokens:UserWarning")

TEXTS = ["Anna lives", "a"]


@pytest.fixture
def around(emulated, monkeypatch):
    """Let backend="cuda" run encoders as the reference does, and everything else on the emulated device."""
    launched, launch = [], emulated.launch
    monkeypatch.setattr(numba_cuda.CudaBackend, "prepare",
                        lambda self, config, weights, run: ReferenceBackend().prepare(config, weights, RunConfig()))
    emulated.launch = lambda kernel, *arguments: launched.append(kernel.name) or launch(kernel, *arguments)
    yield launched
    assert launched


def near(found, expected, tolerance):
    """Compare results: labels, words and places are equal, and numbers differ by `tolerance` at most."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for key, value in expected.items():
            near(found[key], value, tolerance)
    elif isinstance(expected, (list, tuple)):
        assert len(found) == len(expected), (found, expected)
        for one, other in zip(found, expected, strict=True):
            near(one, other, tolerance)
    elif isinstance(expected, (float, np.ndarray, np.floating)):
        assert np.shape(found) == np.shape(expected)
        assert np.allclose(found, expected, rtol=0, atol=tolerance)
    else:
        assert found == expected


HEADS = {
    "classes": ("bert_classify", lambda engine: engine.classify(TEXTS, top_k=None)),
    "classes of a mean": ("modernbert_mean", lambda engine: engine.classify(TEXTS, top_k=None)),
    "several at once": ("bert_several", lambda engine: engine.classify(TEXTS, top_k=None)),
    "pairs": ("xlm_roberta_pairs", lambda engine: engine.predict([("Who?", text) for text in TEXTS])),
    "rank": ("bert_pairs", lambda engine: engine.rank("Who?", TEXTS)),
    "tags": ("distilbert_tag", lambda engine: engine.tag(TEXTS)),
    "answers": ("electra_answer", lambda engine: engine.answer("Who?", TEXTS[0], top_k=2)),
    "words": ("bert_fill_mask", lambda engine: engine.fill_mask("a [MASK]", top_k=3)),
    "words with a norm": ("albert_fill_mask", lambda engine: engine.fill_mask("a <mask>", top_k=3)),
    "sparse": ("distilbert_fill_mask", lambda engine: engine.encode_sparse(TEXTS).to_dense()),
}


@pytest.mark.parametrize("name", HEADS)
def test_heads(name, around):
    model, call = HEADS[name]
    near(call(Engine.load(folder_of(model), backend="cuda")), call(Engine.load(folder_of(model), backend="reference")),
         1e-4)


def test_labels_of_the_caller(around):
    labels = {"candidate_labels": ["good", "bad"], "top_k": None}
    engines = [Engine.load(folder_of("bert_classify"), backend=backend) for backend in ("cuda", "reference")]
    for engine in engines:      # a label "entailment" makes it a classifier of inference
        head = engine.heads["classify"]
        object.__setattr__(head, "labels", ("entailment", *head.labels[1:]))
    near(*(engine.classify(TEXTS, **labels) for engine in engines), 1e-4)


def test_modules_and_routes(around, tmp_path):
    """Dense modules of tokens and of texts; a table beside a transformer."""
    write_chain(tmp_path / "chain", 3)
    write_router(tmp_path / "routes", "asymmetric maps")
    for folder, call in (("chain", lambda engine: engine.encode(TEXTS)),
                         ("routes", lambda engine: engine.encode_document(TEXTS, normalize_embeddings=True))):
        near(*(call(Engine.load(tmp_path / folder, backend=backend)) for backend in ("cuda", "reference")), 1e-5)


def test_late_interaction(around, tmp_path):
    name = next(iter(late_folders.CASES))
    late_folders.write_late(tmp_path / "late", name)
    cuda, reference = (Engine.load(tmp_path / "late", backend=backend) for backend in ("cuda", "reference"))
    queries, documents = reference.encode_query(TEXTS), reference.encode_document(["a cat sat", "Berlin"])
    near(cuda.encode_document(TEXTS), reference.encode_document(TEXTS), 1e-5)
    near(cuda.similarity(queries, documents), reference.similarity(queries, documents), 1e-5)
    near(cuda.similarity_pairwise(queries, documents), reference.similarity_pairwise(queries, documents), 1e-5)


def test_three_kinds_of_vectors(around):
    cuda, reference = (Engine.load(folder_of_m3(), backend=backend) for backend in ("cuda", "reference"))
    near(cuda.encode_sparse(TEXTS).to_dense(), reference.encode_sparse(TEXTS).to_dense(), 1e-5)
    near(cuda.encode_tokens(TEXTS), reference.encode_tokens(TEXTS), 1e-5)
    vectors = reference.encode(TEXTS)
    near(cuda.similarity(vectors, vectors), reference.similarity(vectors, vectors), 1e-5)


@pytest.mark.parametrize(("name", "argument"), [
    ("vit_own", "pixel_values"), ("whisper_relu", "input_features"), ("wav2vec2_base", "input_values")])
def test_patches_and_convolutions(name, argument, around):
    with np.load(GOLDEN / name / "inputs.npz") as file:
        given = file["given_0"][None]
    if argument == "input_values":
        given = given[:, :1200]
    found, expected = (load(GOLDEN / name, backend).forward(**{argument: given}) for backend in ("cuda", "reference"))
    near(found, expected, 3e-5)


def test_weights_of_a_head_are_uploaded_once(around, emulated):
    uploads, copy = [], emulated.copy
    emulated.copy = lambda target, source: uploads.append(source.size) or copy(target, source)
    engine = Engine.load(folder_of("bert_classify"), backend="cuda")
    first = engine.classify("a")
    sizes = [array.size for head in engine._heads for array in head.weights.values()]
    assert {size: uploads.count(size) for size in sizes if size > 24} == dict.fromkeys([n for n in sizes if n > 24], 1)
    assert engine.classify("a") == first
    assert [uploads.count(size) for size in sizes if size > 24] == [1] * sum(n > 24 for n in sizes)


def classifier(seed=4):
    """Return a BERT with one layer of one head of width 32, and a head of three labels."""
    head = HeadConfig("classify", "first", (HeadLinear("dense", 32, activation="tanh"), HeadLinear("out", 3)),
                      labels=("good", "bad", "neither"))
    rng = np.random.default_rng(seed)
    arrays = {name: rng.standard_normal(shape, np.float32) / 4 for name, shape in head.shapes(32, (30, 32)).items()}
    model = random_model(tiny_text(), seed, hidden_size=32, num_layers=1, num_heads=1, head_width=32, ffn_size=40)
    weights = {name: array if "norm" in name else array / 4 for name, array in model.weights.items()}
    return type(model)(model.config, weights, model.text, heads=(Head(head, arrays),))


@pytest.mark.parametrize(("precision", "tolerance"), [("float32", 1e-4), ("bfloat16", 2e-2)])
def test_a_whole_classifier_on_the_device(precision, tolerance, emulated):
    model = classifier()
    texts = ["the cat sat", ("the dog", "ran far")]
    found = engine_of(model, backend="cuda", precision=precision).classify(texts, top_k=None)
    near(found, engine_of(model, backend="reference").classify(texts, top_k=None), tolerance)


def test_a_head_that_reads_a_decoder(emulated):
    with pytest.raises(UnsupportedError, match="the backend cuda runs none, for texts or for heads that read"):
        Engine.load(folder_of("bart_classify"), backend="cuda")


def test_a_golden_model_on_the_device(emulated):
    """The labels of transformers, from ids to scores."""
    found = Engine.load(folder_of("bert_classify"), backend="cuda").classify(["lovely"])
    near(found, [expected_of("bert_classify")["best"][5]], 1e-4)


def test_sequences_beyond_the_memory_are_named(emulated):
    engine = engine_of(classifier(), backend="cuda", max_batch_tokens=4)
    with pytest.raises(InputError, match="max_batch_tokens"):
        engine.classify("the cat sat on a mat")
