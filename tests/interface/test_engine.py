"""Test the public engine, on the reference backend."""

import os
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest

from engine import Engine
from engine.base.errors import BackendUnavailable, EngineError, InputError, UnsupportedError
from engine.weights.modules import normalize

from ..tools.encoders import convert_encoder, engine_of, save_encoder
from ..tools.tiny_models import D, random_model
from ..tools.tiny_text import ids, tiny_text


def make(text=None, **changes):
    return engine_of(random_model(text, **changes), backend="reference", threads=1)


def test_forward_of_an_array_and_of_a_list_agree():
    engine = make()
    tokens, mask = (
        np.array([[4, 5, 6, 7], [8, 9, 0, 0], [0, 0, 0, 0]]),
        np.array([[1, 1, 1, 1], [1, 1, 0, 0], [0, 0, 0, 0]]),
    )
    padded = engine.forward(tokens, mask)
    assert (padded.shape, padded.dtype) == ((3, 4, D), np.float32)
    assert not padded[mask == 0].any()
    first, second, third = engine.forward([[4, 5, 6, 7], [8, 9], []])
    np.testing.assert_allclose(padded[0], first, atol=1e-6)
    np.testing.assert_allclose(padded[1, :2], second, atol=1e-6)
    assert third.shape == (0, D)


def test_embeddings_stand_in_for_the_word_table():
    model = random_model()
    engine = engine_of(model, backend="reference", threads=1)
    tokens = np.array([[4, 5, 6]])
    np.testing.assert_array_equal(
        engine.forward(inputs_embeds=model.weights["embeddings.word"][tokens]), engine.forward(tokens)
    )


def test_a_pickle_has_the_length_of_limits_and_text_settings_in_their_order(tmp_path):
    save_encoder(random_model(tiny_text()), tmp_path / "model.npz")
    engine = Engine.load(tmp_path / "model.npz", backend="reference")
    for made, length in ((engine.limited_to(3).with_text(max_seq_length=7), 7),
                         (engine.with_text(max_seq_length=7).limited_to(3), 3),
                         (engine.limited_to(3).limited_to(7), 3),
                         (engine.limited_to(3).with_text(max_seq_length=7, truncate_dim=2).limited_to(5), 5),
                         (engine.limited_to(3).with_text(truncate_dim=2), 3)):
        assert made.max_seq_length == pickle.loads(pickle.dumps(made)).max_seq_length == length


def test_an_engine_with_other_text_settings(tmp_path):
    save_encoder(random_model(tiny_text()), tmp_path / "model.npz")
    engine = Engine.load(tmp_path / "model.npz", backend="reference")
    before = engine.encode(SENTENCES)
    other = engine.with_text(max_seq_length=3, truncate_dim=2, similarity="dot", prompts={"query": "a "})
    many = other
    for i in range(400):        # a chain of calls is one call in a pickle
        many = many.with_text(max_seq_length=3, prompts={"query": f"{i} "})
    again = pickle.loads(pickle.dumps(many))
    assert (again.text.prompts, again.text.similarity) == ({"query": "399 "}, "dot")
    again = pickle.loads(pickle.dumps(other))
    for changed in (other, again):
        vectors = changed.encode(SENTENCES)
        assert vectors.shape == (len(SENTENCES), 2)
        assert changed.tokenize(SENTENCES)["input_ids"].shape[1] == changed.max_seq_length == 3
        np.testing.assert_allclose(changed.similarity(vectors, vectors), vectors @ vectors.T, rtol=1e-5)
        assert changed.prompts == {"query": "a "}
    np.testing.assert_array_equal(engine.encode(SENTENCES), before)
    for wrong, message in (({"max_len": 3}, "no text setting max_len"), ({"max_seq_length": 0}, "max_seq_length"),
                           ({"similarity": "maxsim"}, "similarity maxsim")):
        with pytest.raises(InputError, match=message):
            engine.with_text(**wrong)
    with pytest.raises(UnsupportedError, match="tokenizer"):
        make().with_text(max_seq_length=3)


def test_a_model_without_tables():
    engine = make(vocab_size=0, max_positions=0, token_types=0, embedding_norm=False)
    assert engine.forward(inputs_embeds=np.ones((2, 3, D))).shape == (2, 3, D)


def test_bad_input_is_an_engine_error():
    with pytest.raises(EngineError, match="token id 30"):
        make().forward(np.array([[30]]))


@pytest.fixture(scope="module")
def engine():
    return make(tiny_text(max_seq_length=10, prompts={"q": "query: "}))


SENTENCES = ["the cat sat on a mat", "", "dog", ("the cat", "ran away"), "the " * 40, "\t"]


def test_encode_pools_what_forward_gives(engine):
    vectors = engine.encode(SENTENCES)
    assert (vectors.shape, vectors.dtype) == ((6, D), np.float32)
    words = [
        "[CLS] the cat sat on a mat [SEP]",
        "[CLS] [SEP]",
        "[CLS] dog [SEP]",
        "[CLS] the cat [SEP] ran away [SEP]",
        "[CLS] the the the the the the the the [SEP]",
        "[CLS] [SEP]",
    ]
    types = [[0] * len(ids(w)) for w in words]
    types[3] = [0, 0, 0, 0, 1, 1, 1]
    tokens = engine.forward([ids(w) for w in words], token_type_ids=types)
    np.testing.assert_allclose(vectors, [rows.mean(0) for rows in tokens], atol=1e-5)
    for embedded, rows in zip(engine.encode(SENTENCES, output_value="token_embeddings"), tokens, strict=True):
        np.testing.assert_allclose(embedded, rows, atol=1e-5)


def test_encode_one_string(engine):
    assert engine.encode("dog").shape == (D,)
    assert engine.encode("dog", output_value="token_embeddings").shape == (3, D)
    np.testing.assert_allclose(engine.encode("dog"), engine.encode(["dog"])[0], atol=1e-6)


def test_encode_nothing(engine):
    assert engine.encode([]).shape == (0, D)
    assert engine.encode([], output_value="token_embeddings") == []


def test_encode_options(engine):
    plain = engine.encode(SENTENCES)
    np.testing.assert_allclose(engine.encode(SENTENCES, batch_size=1), plain, atol=1e-6)
    np.testing.assert_allclose(engine.encode(SENTENCES, normalize_embeddings=True), normalize(plain), atol=1e-6)
    np.testing.assert_allclose(
        engine.encode(SENTENCES, normalize_embeddings=True, truncate_dim=5), normalize(plain[:, :5]), atol=1e-6
    )
    np.testing.assert_allclose(engine.encode("dog", prompt="query: "), engine.encode("query: dog"), atol=1e-6)
    np.testing.assert_allclose(engine.encode("dog", prompt_name="q"), engine.encode("query: dog"), atol=1e-6)
    as_list = engine.encode(SENTENCES, convert_to_numpy=False)
    assert isinstance(as_list, list)
    np.testing.assert_allclose(as_list, plain, atol=1e-6)


def test_vectors_of_length_1_are_scaled_once():
    """A second division would change last bits, so that two ways to ask for the same vectors would differ."""
    engine = make(tiny_text(normalize=True))
    texts = [" ".join(words) for words in product(["dog", "cat", "query", ":"], repeat=3)]
    plain = engine.encode(texts)
    assert not np.array_equal(normalize(plain), plain)
    assert np.array_equal(engine.encode(texts, normalize_embeddings=True), plain)
    assert np.array_equal(engine.encode(texts, normalize_embeddings=True, truncate_dim=D), plain)
    for row, vector in zip(engine.encode(texts, normalize_embeddings=True, output_value=None), plain, strict=True):
        assert np.array_equal(row["sentence_embedding"], vector)
    cut = engine.encode(texts, truncate_dim=5)
    assert np.array_equal(cut, plain[:, :5])
    assert np.array_equal(engine.encode(texts, normalize_embeddings=True, truncate_dim=5), normalize(cut))


def test_sentences_of_several_slices_keep_their_places(engine, monkeypatch):
    plain = engine.encode(SENTENCES)
    monkeypatch.setattr("engine.text.sentences.SLICE_SENTENCES", 2)
    np.testing.assert_allclose(engine.encode(SENTENCES), plain, atol=1e-6)
    for row, expected in zip(engine.encode(SENTENCES, output_value=None), plain, strict=True):
        np.testing.assert_allclose(row["sentence_embedding"], expected, atol=1e-6)


def test_the_models_own_options():
    text = tiny_text(pooling=("cls", "mean"), normalize=True, include_prompt=False)
    engine = make(text)
    [tokens] = engine.forward([ids("[CLS] query : dog [SEP]")])
    expected = normalize(np.concatenate([tokens[3], tokens[3:].mean(0)]))
    np.testing.assert_allclose(engine.encode("dog", prompt="query: "), expected, atol=1e-6)
    assert make(replace(text, include_prompt=True)).encode([], truncate_dim=7).shape == (0, 7)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"batch_size": 0}, InputError, "batch_size must be"),
        ({"truncate_dim": -1}, InputError, "truncate_dim must be"),
        ({"output_value": "tokens"}, InputError, "output_value must be one of 'sentence_embedding', 'token_embedd"),
        ({"prompt_name": "x"}, InputError, "no prompt called 'x'"),
        ({"convert_to_tensor": True}, UnsupportedError, "only NumPy arrays"),
        ({"precision": "int4"}, InputError, r"Precision 'int4' is not supported.*Engine\.load\(\.\.\., precision="),
        ({"device": "cuda"}, UnsupportedError, r"'cpu', not on 'cuda'; Engine\.load\(\.\.\., backend="),
        ({"device": ["cpu", "cpu"]}, UnsupportedError, "one engine uses all CPUs"),
        ({"pool": {}}, UnsupportedError, "pool is for a pool of processes"),
        ({"chunk_size": 5}, UnsupportedError, "chunk_size is for a pool of processes"),
        ({"task": "query"}, InputError, "call encode_query or encode_document; for an adapter"),
    ],
)
def test_bad_options(engine, options, error, message):
    with pytest.raises(error, match=message):
        engine.encode("dog", **options)


def test_options_that_change_nothing(engine):
    options = {"device": "cpu", "precision": "float32", "pool": None, "chunk_size": None, "convert_to_tensor": False}
    np.testing.assert_array_equal(engine.encode(SENTENCES, **options), engine.encode(SENTENCES))


def test_everything_of_a_sentence(engine):
    rows = engine.encode(SENTENCES, output_value=None, truncate_dim=5)
    assert list(rows[3]) == ["input_ids", "attention_mask", "token_type_ids", "token_embeddings", "sentence_embedding"]
    assert rows[3]["input_ids"].tolist() == ids("[CLS] the cat [SEP] ran away [SEP]")
    assert rows[3]["token_type_ids"].tolist() == [0, 0, 0, 0, 1, 1, 1]
    assert rows[3]["attention_mask"].tolist() == [1] * 7
    vectors = engine.encode(SENTENCES, truncate_dim=5)
    tokens = engine.encode(SENTENCES, output_value="token_embeddings")
    for row, vector, own in zip(rows, vectors, tokens, strict=True):
        np.testing.assert_array_equal(row["sentence_embedding"], vector)
        np.testing.assert_array_equal(row["token_embeddings"], own)
    assert engine.encode("dog", output_value=None)["input_ids"].shape == (3,)
    assert engine.encode([], output_value=None) == []


def test_tokenize_gives_the_arguments_of_forward(engine):
    arguments = engine.tokenize(SENTENCES)
    assert {name: (array.shape, array.dtype) for name, array in arguments.items()} == dict.fromkeys(
        ["input_ids", "attention_mask", "token_type_ids"], ((6, 10), np.int64)
    )
    assert arguments["input_ids"][2].tolist() == ids("[CLS] dog [SEP]") + [0] * 7
    tokens = engine.encode(SENTENCES, output_value="token_embeddings")
    for padded, own in zip(engine.forward(**arguments), tokens, strict=True):
        np.testing.assert_allclose(padded[: len(own)], own, atol=1e-5)
    assert engine.tokenize("dog")["input_ids"].shape == (1, 3)
    assert engine.tokenize([])["input_ids"].shape == (0, 0)
    assert list(make(tiny_text(), token_types=0).tokenize("dog")) == ["input_ids", "attention_mask"]


def test_a_tokenizer_without_token_types():
    engine = make(tiny_text(feeds_token_types=False))
    words = ids("[CLS] dog [SEP] cat [SEP]")
    np.testing.assert_array_equal(engine.encode([("dog", "cat")], output_value="token_embeddings")[0],
                                  engine.forward([words])[0])  # fmt: skip
    assert list(engine.tokenize([("dog", "cat")])) == ["input_ids", "attention_mask"]
    assert "token_type_ids" not in engine.encode(("dog",), output_value=None)[0]


def test_padding_of_a_tokenized_text_is_the_models():
    engine = make(tiny_text(), pad_token_id=7, position_offset=8)
    assert engine.tokenize(["the cat sat", "dog"])["input_ids"][1].tolist() == [*ids("[CLS] dog [SEP]"), 7, 7]


@pytest.mark.parametrize(("prompts", "query", "document"), [
    ({"query": "query: ", "passage": "the "}, "query: dog", "the dog"),
    ({"query": "query: ", "document": "a ", "passage": "the "}, "query: dog", "a dog"),
    ({"corpus": "and "}, "dog", "and dog"),
    ({"query": "query: ", "document": ""}, "query: dog", "dog"),
])  # fmt: skip
def test_prompts_of_queries_and_documents(prompts, query, document):
    engine = make(tiny_text(prompts=prompts, default_prompt_name=next(iter(prompts))))
    np.testing.assert_array_equal(engine.encode_query(["dog"]), engine.encode([query], prompt=""))
    np.testing.assert_array_equal(engine.encode_document("dog"), engine.encode(document, prompt=""))
    name = next(iter(prompts))
    np.testing.assert_array_equal(
        engine.encode_document("dog", prompt_name=name, normalize_embeddings=True),
        engine.encode("dog", prompt_name=name, normalize_embeddings=True),
    )
    np.testing.assert_array_equal(engine.encode_query("dog", prompt="a "), engine.encode("a dog", prompt=""))
    assert (engine.prompts, engine.default_prompt_name) == (prompts, name)


def test_facts_about_the_text(engine):
    assert engine.max_seq_length == 10
    assert make(tiny_text(max_seq_length=99)).max_seq_length == make().max_seq_length == 16
    assert make(tiny_text(pooling=("cls", "mean"))).get_embedding_dimension() == 2 * D
    assert engine.get_sentence_embedding_dimension() == D
    assert (make().prompts, make().default_prompt_name) == ({}, None)
    assert engine.similarity_pairwise(np.eye(3), np.eye(3)).tolist() == [1, 1, 1]


@pytest.mark.parametrize("call", [
    lambda engine: engine.encode("dog"), lambda engine: engine.encode_query("dog"),
    lambda engine: engine.tokenize("dog"), lambda engine: engine.get_embedding_dimension(),
])  # fmt: skip
def test_a_model_without_tokenizer(call):
    with pytest.raises(UnsupportedError, match="without a tokenizer"):
        call(make())


def test_many_threads(engine):
    expected = engine.encode(SENTENCES)
    with ThreadPoolExecutor(8) as pool:
        for vectors in pool.map(lambda _: engine.encode(SENTENCES), range(32)):
            np.testing.assert_array_equal(vectors, expected)


def test_pickle_loads_the_path_again(tmp_path, monkeypatch):
    save_encoder(random_model(), tmp_path / "model.npz")
    monkeypatch.chdir(tmp_path)
    engine = Engine.load("model.npz", backend="reference", threads=1, max_batch_tokens=77)
    pickled = pickle.dumps(engine)
    monkeypatch.chdir("/")
    copy = pickle.loads(pickled)
    assert (copy.backend, copy.threads, copy.max_batch_tokens) == ("reference", 1, 77)
    np.testing.assert_array_equal(copy.forward([[1, 2, 3]])[0], engine.forward([[1, 2, 3]])[0])
    assert len(pickled) < 1000


def test_a_model_in_memory_is_not_pickled():
    with pytest.raises(UnsupportedError, match=r"Engine\.load"):
        pickle.dumps(make())


def test_attributes():
    engine = make()
    found = engine.backend, engine.threads, engine.max_batch_tokens, engine.precision
    assert found == ("reference", 1, 8192, "float32")
    assert repr(engine) == "<Engine: bert, 2 layers of width 12, 0.0M parameters; reference backend, float32, 1 thread>"


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"max_batch_tokens": 0}, InputError),
        ({"threads": 0}, InputError),
        ({"threads": [1]}, InputError),
        ({"backend": ["cython"]}, InputError),
        ({"backend": "abacus"}, BackendUnavailable),
        ({"precision": "int3"}, UnsupportedError),
    ],
)
def test_bad_load_options(options, error):
    with pytest.raises(error):
        engine_of(random_model(), **{"backend": "reference"} | options)


def test_numpy_integers():
    engine = engine_of(random_model(tiny_text()), backend="reference", threads=np.int64(1),
                       max_batch_tokens=np.int32(64))
    assert (type(engine.threads), type(engine.max_batch_tokens)) == (int, int)
    assert engine.encode(["dog", "cat"], batch_size=np.int64(1), truncate_dim=np.uint8(5)).shape == (2, 5)


def test_the_precision_is_that_of_the_weights_unless_asked_for(monkeypatch):
    asked = []
    backend = SimpleNamespace(name="spy", batch_invariant=True,
                              prepare=lambda config, weights, run: asked.append(run.precision))
    monkeypatch.setattr("engine.backends.get_backend", lambda name: backend)
    model, quantized = random_model(), convert_encoder(random_model(), "int8")
    engines = [engine_of(model), engine_of(model, precision="int8"), engine_of(quantized),
               engine_of(quantized, precision="int8")]
    assert asked == [engine.precision for engine in engines] == ["float32", "int8", "int8", "int8"]
    with pytest.raises(UnsupportedError, match="weights are in int8"):
        engine_of(quantized, precision="float32")


FORK = """
import os, sys, numpy as np
from engine import Engine
engine = Engine.load(sys.argv[1], backend="reference")
before = engine.encode(["the cat", "sat"])
child = os.fork()
if child == 0:
    os._exit(0 if np.array_equal(engine.encode(["the cat", "sat"]), before) else 3)
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
assert np.array_equal(engine.encode(["the cat", "sat"]), before)
sys.exit(status)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_encode_after_a_fork(tmp_path):
    save_encoder(random_model(tiny_text()), tmp_path / "model.npz")
    subprocess.run([sys.executable, "-c", FORK, str(tmp_path / "model.npz")], check=True, timeout=60)
