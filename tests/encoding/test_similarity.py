"""Similarities and vectors in fewer bits; sentence-transformers 6.2 computed the expected numbers."""

import json
from itertools import product

import numpy as np
import pytest

from engine import Engine, InputError, UnsupportedError
from engine.encoding.similarity import pairwise_similarity, similarity
from engine.encoding.vector_precision import quantize_vectors
from engine.model.text_config import SIMILARITIES

from ..tools.encoders import engine_of, load_encoder, save_encoder
from ..tools.model_files import st_folder
from ..tools.tiny_models import random_model
from ..tools.tiny_text import tiny_text

V = np.array([[0.5, -0.25, 0, 1, -1, 0.3, 0.7, -0.2, 0.1], [-0.5, 0.25, 0, 2, -3, 0.1, 0.9, 0.2, -0.1],
              [0.1, 0.05, 0, 1.5, -2, 0.2, 0.8, 0, 0.05]], np.float32)
RANGES = np.array([[-1] * 9, [1] * 9], np.float32)
ALL = {
    "cosine": [[1, 0.82004], [0.82004, 1], [0.92079, 0.97712]],
    "dot": [[2.9425, 5.2975], [5.2975, 14.1825], [4.1625, 9.6975]],
    "euclidean": [[0, -2.55539], [-2.55539, 0], [-1.25, -1.31624]],
    "manhattan": [[0, -5.5], [-5.5, 0], [-2.65, -2.85]],
}
PAIRS = {"cosine": [0.92079, 1, 0.92079], "dot": [4.1625, 14.1825, 4.1625], "euclidean": [-1.25, 0, -1.25],
         "manhattan": [-2.65, 0, -2.65]}
CODES = {
    "int8": [[63, -33, -1, 126, -128, 37, 88, -27, 12], [-65, 31, -1, 127, -128, 12, 114, 25, -14],
             [12, 5, -1, 127, -128, 25, 101, -1, 5]],
    "uint8": [[191, 95, 127, 254, 0, 165, 216, 101, 140], [63, 159, 127, 255, 0, 140, 242, 153, 114],
              [140, 133, 127, 255, 0, 153, 229, 127, 133]],
    "binary": [[22, 0], [-41, -128], [86, 0]],
    "ubinary": [[150, 128], [87, 0], [214, 128]],
}
OF_THESE = [[254, 0, 0, 0, 254, 255, 0, 0, 255], [0, 254, 0, 254, 0, 0, 255, 255, 0],
            [153, 153, 0, 127, 127, 127, 127, 127, 191]]


@pytest.mark.parametrize("name", [name for name in SIMILARITIES if "maxsim" not in name])
def test_similarities(name):
    np.testing.assert_allclose(similarity(name, V, V[:2]), ALL[name], atol=2e-5)
    np.testing.assert_allclose(pairwise_similarity(name, V, V[::-1]), PAIRS[name], atol=2e-5)
    assert similarity(name, V[0].tolist(), V).shape == (1, 3)
    assert similarity(name, V[:0], V).shape == (0, 3)
    assert similarity(name, V, V).dtype == pairwise_similarity(name, V, V).dtype == np.float32


def test_the_cosine_of_zeros_is_0():
    np.testing.assert_allclose(similarity("cosine", [1.0, 0.0], [0.0, 0.0]), [[0]])


@pytest.mark.parametrize(("a", "b", "message"), [
    (np.ones((2, 3)), np.ones((2, 4)), "vectors of 3 and of 4 dimensions"),
    (np.ones(3), np.ones(4), "vectors of 3 and of 4 dimensions"),
    (np.ones((1, 2, 3)), np.ones(3), r"\[n,D\] or \[D\], not \[1, 2, 3\]"),
    ("a text", np.ones(3), "vectors must be numbers"),
    ([[1, 2], [3]], np.ones(2), "vectors must be numbers"),
])  # fmt: skip
def test_vectors_that_cannot_be_compared(a, b, message):
    for compare in (similarity, pairwise_similarity):
        with pytest.raises(InputError, match=message):
            compare("cosine", a, b)


def test_pairs_of_unequal_numbers():
    with pytest.raises(InputError, match="not 2 and 3"):
        pairwise_similarity("dot", np.ones((2, 3)), np.ones((3, 3)))


def test_codes_of_sentence_transformers():
    for precision, codes in CODES.items():
        found = quantize_vectors(V, precision, RANGES)
        assert found.tolist() == codes
        assert found.dtype == (np.uint8 if precision.startswith("u") else np.int8)
    with pytest.warns(UserWarning, match="the ranges of int8 and uint8 are those of the vectors of this call"):
        assert quantize_vectors(V, "uint8").tolist() == OF_THESE
    assert quantize_vectors(V[:0], "int8").shape == (0, 9)
    for ranges in (RANGES[:, :8], RANGES[::-1], "x", np.full((2, 9), np.nan)):
        with pytest.raises(InputError, match=r"ranges must be the smallest and the largest .*\[2, 9\]"):
            quantize_vectors(V, "int8", ranges)
    with pytest.raises(InputError, match="a single vector has no ranges"):
        quantize_vectors(V[:1], "int8")


def test_encode_in_fewer_bits(one_backend):
    engine = engine_of(random_model(tiny_text()), backend=one_backend)
    texts = ["the cat", "a dog ran", "far away"]
    vectors = engine.encode(texts)
    ranges = np.stack([vectors.min(axis=0), vectors.max(axis=0)])
    for precision in CODES:
        found = engine.encode(texts, precision=precision, ranges=ranges)
        assert np.array_equal(found, quantize_vectors(vectors, precision, ranges))
        assert np.array_equal(engine.encode(texts[1], precision=precision, ranges=ranges), found[1])
    with pytest.raises(InputError, match="vectors, one of float32"):
        engine.encode(texts, precision="int4")
    with pytest.raises(UnsupportedError, match="is for the vectors of sentences alone"):
        engine.encode(texts, precision="binary", output_value="token_embeddings")


def test_the_files_say_how_vectors_are_compared_and_cut(tmp_path, one_backend):
    tokenizer = tiny_text().tokenizer_json
    folder = st_folder(tmp_path / "st", "Transformer", "Pooling", files={"config_sentence_transformers.json": {
        "similarity_fn_name": "euclidean", "truncate_dim": 5}})
    (folder / "tokenizer.json").write_bytes(tokenizer)
    save_encoder(load_encoder(folder), tmp_path / "model.npz")
    with np.load(tmp_path / "model.npz") as file:
        assert json.loads(bytes(file["config"]))["version"] == 2
    for path in (folder, tmp_path / "model.npz"):
        engine = Engine.load(path, backend=one_backend)
        assert (engine.similarity_fn_name, engine.get_embedding_dimension()) == ("euclidean", 5)
        vectors = engine.encode(["the cat", "a dog"])
        assert vectors.shape == (2, 5)
        assert engine.encode(["the cat"], truncate_dim=7).shape == (1, 7)
        np.testing.assert_array_equal(engine.similarity(vectors, vectors), similarity("euclidean", vectors, vectors))
        assert engine.similarity_pairwise(vectors, vectors).tolist() == [0, 0]


def signs(vectors):
    """Return the cosines of the vectors of signs, [n,n]."""
    ones = np.where(vectors > 0, 1.0, -1.0)
    return ones @ ones.T / ones.shape[1]


@pytest.mark.parametrize("precision", ["binary", "ubinary"])
def test_packed_vectors_are_compared_by_their_bits(precision):
    engine = engine_of(random_model(tiny_text(), hidden_size=16, num_heads=4), backend="reference")
    vectors = np.random.default_rng(0).standard_normal((5, 16)).astype(np.float32)
    packed = quantize_vectors(vectors, precision)
    np.testing.assert_allclose(engine.similarity(packed, packed[:3]), signs(vectors)[:, :3], rtol=1e-6)
    np.testing.assert_allclose(engine.similarity_pairwise(packed, packed[::-1]), signs(vectors)[:, ::-1].diagonal())
    assert engine.similarity(list(packed), packed[0]).shape == (5, 1)
    longer = quantize_vectors(np.tile(vectors, 4), precision)       # of another width, which the argument explains
    for x in (longer, longer.tolist()):
        np.testing.assert_allclose(engine.similarity(x, longer, precision=precision), signs(vectors), atol=1e-6)
    with pytest.raises(InputError, match=r'8 u?int8 numbers .* have 16 dimensions; say what they are: precision='):
        engine.similarity(longer, longer)
    with pytest.raises(InputError, match="precision must be one of float32, int8, "):
        engine.similarity(packed, packed, precision="bits")
    with pytest.raises(InputError, match=f"vectors in {precision} are whole numbers from"):
        engine.similarity(vectors, vectors, precision=precision)


def test_vectors_in_two_precisions_are_not_compared():
    engine = engine_of(random_model(tiny_text(), hidden_size=16, num_heads=4), backend="reference")
    vectors = np.random.default_rng(0).standard_normal((5, 16)).astype(np.float32)
    ranges = np.stack([vectors.min(axis=0), vectors.max(axis=0)])
    of = {name: quantize_vectors(vectors, name, ranges) for name in ("int8", "uint8", "binary", "ubinary")}
    of["float32"] = vectors
    fits = {frozenset(["float32", "int8"]), *(frozenset([name]) for name in of)}
    for one, other in product(of, of):
        for compare in (engine.similarity, engine.similarity_pairwise):
            if {one, other} in fits:
                assert compare(of[one], of[other]).dtype == np.float32
                continue
            with pytest.raises(InputError, match=f"vectors in {one} and in {other} cannot be compared; encode both"):
                compare(of[one], of[other])
    with pytest.raises(InputError, match="vectors of 2 int64 numbers"):
        engine.similarity(of["binary"].tolist(), of["binary"].tolist())
    assert engine.similarity(of["int8"][:, :2], of["int8"][:, :2], precision="int8").shape == (5, 5)
