"""Sparse vectors are those of sentence-transformers' SparseEncoder; tests/golden/make/sparse.py wrote them."""

import json
import pickle
import sys
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from engine import Engine, InputError, UnsupportedError
from engine.heads import runner as runner_module
from engine.heads import sparse as sparse_module
from engine.heads.runner import HeadRunner

from ..tools import head_texts as texts
from ..tools import splade
from ..tools.encoders import load_encoder, save_encoder
from ..tools.head_models import folder_of, write_folder
from ..tools.module_folders import TYPES
from ..tools.paths import HEADS
from ..tools.tiles import floats_on_tiles
from ..tools.tiny_models import write_json, write_modules_json

pytest.importorskip("tokenizers")

EXPECTED = json.loads((HEADS / "sparse.json").read_text(encoding="utf-8"))
REAL = ("A kitten sleeps on the sofa, because it is tired.", "Which library runs encoders without PyTorch?")


def sparse_folder(folder, name, pooling="max", activation="relu", **settings):
    """Write the folder that sentence-transformers 6 saves for a SparseEncoder."""
    write_folder(folder, name)
    write_modules_json(folder, ("", TYPES["Transformer"]), ("1_SpladePooling", TYPES["SpladePooling"]))
    write_json(folder / "config_sentence_transformers.json", {"model_type": "SparseEncoder", "prompts": {}} | settings)
    write_json(folder / "sentence_bert_config.json", {"transformer_task": "fill-mask",
                                                      "module_output_name": "token_embeddings"})
    write_json(folder / "1_SpladePooling" / "config.json", {"pooling_strategy": pooling,
                                                            "activation_function": activation})
    return folder


def assert_words(found, expected):
    """Compare words and their numbers, but for ids without a token. Nearly equal numbers may change places."""
    assert len(found) == len(expected)
    for row, other in zip(found, expected, strict=True):
        own = dict(row)
        row, other = ([(token, number) for token, number in words if token] for words in (row, other))
        missing = {token: number for token, number in other if token not in own}
        assert all(number < 1e-4 for number in missing.values()), missing
        assert len(row) - len(other) <= 2
        for token, number in other:
            assert own.get(token, 0) == pytest.approx(number, abs=1e-4)
        assert [number for _, number in row] == sorted((number for _, number in row), reverse=True)


@pytest.mark.parametrize("case", [case for case in EXPECTED if case != "real"])
def test_the_words_of_sentence_transformers(tmp_path, case, one_backend):
    name, pooling, activation = case.split()
    engine = Engine.load(sparse_folder(tmp_path / "folder", name, pooling, activation), backend=one_backend)
    found = engine.encode_sparse(texts.TEXTS[:12])
    assert found.shape == (12, 320)
    assert_words(found.decode(), EXPECTED[case])


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8"])
def test_the_bits_of_a_text_in_any_company(tmp_path, precision, one_backend, check_company):
    folder = sparse_folder(tmp_path / "folder", "bert_fill_mask", "sum" if precision == "bfloat16" else "max")
    check_company(partial(Engine.load, folder, backend=one_backend, precision=precision), Engine.encode_sparse,
                  [*texts.TEXTS[:14], texts.TEXTS[38]])


@pytest.mark.parametrize("pooling", ["max", "sum"])
def test_few_logits_at_a_time_change_no_bit(tmp_path, monkeypatch, pooling, one_backend):
    engine = Engine.load(sparse_folder(tmp_path / "folder", "bert_fill_mask", pooling), backend=one_backend)
    some = [texts.TEXTS[0], "", texts.TEXTS[38], "a"]
    whole = engine.encode_sparse(some)
    for logits in (1, 3 * 320, 7 * 320):
        monkeypatch.setattr(sparse_module, "LOGITS_AT_A_TIME", logits)
        monkeypatch.setattr(runner_module, "MAXIMA_AT_A_TIME", logits)
        found = engine.encode_sparse(some)
        assert found.values.tobytes() == whole.values.tobytes()
        assert found.indptr.tolist() == whole.indptr.tolist()
    assert runner_module.LOGITS_AT_A_TIME == 2**24


def test_maxima_without_logits_have_the_bits_of_those_of_logits(tmp_path, monkeypatch, one_backend):
    if one_backend == "reference":
        pytest.skip("the bits of NumPy's products depend on the number of rows")
    engine = Engine.load(sparse_folder(tmp_path / "folder", "bert_fill_mask"), backend=one_backend)
    some = [*texts.TEXTS[:9], ""]
    kept = engine.encode_sparse(some)
    monkeypatch.setattr(HeadRunner, "ends_in_a_product", False)
    whole = engine.encode_sparse(some)
    assert kept.indices.tolist() == whole.indices.tolist()
    if floats_on_tiles(one_backend):    # logits are products on tiles then, and maxima are those of FMAs
        np.testing.assert_allclose(kept.values, whole.values, rtol=2e-6, atol=1e-6)
    else:
        assert kept.values.tobytes() == whole.values.tobytes()


def test_compressed_rows(one_backend):
    engine = Engine.load(folder_of("bert_fill_mask"), backend=one_backend)
    found = engine.encode_sparse(texts.TEXTS[:5])
    dense = found.to_dense()
    assert (found.indices.dtype, found.values.dtype, found.indptr.dtype) == (np.int32, np.float32, np.int64)
    assert dense.shape == found.shape == (5, 320)
    assert np.count_nonzero(dense) == len(found.values) == found.indptr[-1]
    assert all((np.diff(row.indices) > 0).all() for row in found)
    assert np.array_equal(found[1:3].to_dense(), dense[1:3])
    assert np.array_equal(found[-1].to_dense(), dense[-1:])
    assert found[2:2].shape == (0, 320)
    np.testing.assert_allclose(found.dot(found[:2]), dense @ dense[:2].T, rtol=1e-5)
    assert np.array_equal(found.dot(found), found.dot(found).T)
    kept = pickle.loads(pickle.dumps(found[2]))
    assert kept.decode() == found[2].decode()
    assert len(pickle.dumps(kept)) < 60 * len(kept.values) + 1000      # without the tokenizer
    few = engine.encode_sparse(texts.TEXTS[:5], max_active_dims=4)
    assert np.diff(few.indptr).tolist() == [4] * 5
    assert few.decode() == [row[:4] for row in found.decode()]
    assert found.decode(4) == few.decode()
    assert engine.encode_sparse([]).shape == (0, 320)
    assert engine.encode_sparse(["a"], prompt="Anna ").decode() == engine.encode_sparse(["Anna a"]).decode()
    with pytest.raises(IndexError, match="no row 5"):
        found[5]
    with pytest.raises(InputError, match="rows must be consecutive"):
        found[::2]
    for row in ("a", None, 1.0):
        with pytest.raises(InputError, match="rows are chosen by a number or a slice"):
            found[row]
    for top_k in ("2", 1.0, -1, 0):
        with pytest.raises(InputError, match="top_k must be None or an int of at least 1"):
            found.decode(top_k)
    with pytest.raises(InputError, match="sparse vectors are compared with sparse vectors of encode_sparse"):
        found.dot(dense)
    with pytest.raises(InputError, match="max_active_dims must be"):
        engine.encode_sparse(["a"], max_active_dims=0)


@pytest.mark.parametrize("name", ["dot", "cosine", "euclidean"])
def test_similarity_takes_sparse_vectors(name, one_backend):
    engine = Engine.load(folder_of("bert_fill_mask"), backend=one_backend).with_text(similarity=name)
    found = engine.encode_sparse(texts.TEXTS[:5])
    dense = found.toarray()
    np.testing.assert_allclose(engine.similarity(found[:2], found), engine.similarity(dense[:2], dense), rtol=1e-4)
    np.testing.assert_allclose(engine.similarity_pairwise(found, found[0:5]), engine.similarity_pairwise(dense, dense),
                               rtol=1e-4)
    for compare in (engine.similarity, engine.similarity_pairwise):
        with pytest.raises(InputError, match="sparse vectors are compared with sparse vectors of encode_sparse"):
            compare(found, dense)


def test_a_matrix_of_scipy(monkeypatch):
    found = Engine.load(folder_of("bert_fill_mask"), backend="reference").encode_sparse(texts.TEXTS[:2])
    monkeypatch.setitem(sys.modules, "scipy.sparse", None)
    with pytest.raises(UnsupportedError, match="to_scipy needs the package scipy; run pip install scipy"):
        found.to_scipy()
    sparse = SimpleNamespace(csr_array=lambda parts, shape: (*parts, shape))
    monkeypatch.setitem(sys.modules, "scipy", SimpleNamespace(sparse=sparse))
    monkeypatch.setitem(sys.modules, "scipy.sparse", sparse)
    values, indices, indptr, shape = found.to_scipy()
    assert [*map(id, (values, indices, indptr))] == [*map(id, (found.values, found.indices, found.indptr))]
    assert shape == (2, 320)


def test_a_limit_of_the_folder_and_what_is_refused(tmp_path):
    engine = Engine.load(sparse_folder(tmp_path / "folder", "bert_fill_mask", max_active_dims=3))
    assert np.diff(engine.encode_sparse(texts.TEXTS[:3]).indptr).tolist() == [3] * 3
    with pytest.raises(UnsupportedError, match="pooling_strategy = 'min' is not supported; supported are max, sum"):
        Engine.load(sparse_folder(tmp_path / "min", "bert_fill_mask", "min"))
    with pytest.raises(UnsupportedError, match="activation_function = 'tanh' is not supported"):
        Engine.load(sparse_folder(tmp_path / "tanh", "bert_fill_mask", activation="tanh"))
    with pytest.raises(UnsupportedError, match="no head to encode sparsely; it has heads: tag"):
        Engine.load(folder_of("bert_tag")).encode_sparse("a")


def test_the_real_splade_tiny(one_backend):
    if not splade.FOLDER.exists():
        pytest.skip(splade.MISSING)
    found = Engine.load(splade.FOLDER, backend=one_backend).encode_sparse(REAL).decode(64)
    assert [[token for token, _ in row] for row in found] == [[token for token, _ in row] for row in EXPECTED["real"]]
    assert_words(found, EXPECTED["real"])


@pytest.mark.parametrize(("stated", "expected"), [({}, "dot"), ({"similarity_fn_name": "dot"}, "dot"),
                                                  ({"similarity_fn_name": "euclidean"}, "euclidean")])
def test_similarity_is_that_of_the_folder(stated, expected, tmp_path):
    folder = sparse_folder(tmp_path / "folder", "bert_fill_mask", **stated)
    save_encoder(load_encoder(folder), tmp_path / "model.npz")
    for path in (folder, tmp_path / "model.npz"):
        assert Engine.load(path).similarity_fn_name == expected
