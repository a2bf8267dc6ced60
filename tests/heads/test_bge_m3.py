"""BGE-M3's vectors, lexical weights and ColBERT vectors are those of torch; tests/golden/make/bge_m3.py wrote them."""

import json
import pickle
import shutil
from functools import partial

import numpy as np
import pytest

from engine import Engine, InputError, UnsupportedError, WeightsError
from engine.cli.main import main
from engine.encoding.maxsim import are_of_tokens
from engine.files.torch_checkpoint import read_checkpoint
from engine.loading.load import load_model
from engine.loading.npz_model import save
from engine.model.head import HeadConfig, HeadLinear, HeadNormalize, Mean, Scatter
from engine.weights.bfloat16 import to_bfloat16

from ..tools import late_folders
from ..tools import m3_folders as folders
from ..tools.bits import same
from ..tools.m3_folders import folder_of_m3, write_m3
from ..tools.module_folders import write_router
from ..tools.tiny_models import write_json
from ..tools.torch_files import checkpoint

pytest.importorskip("tokenizers")

EXPECTED = np.load(folders.GOLDEN / "expected.npz")
ROLES = {"query": folders.QUERIES, "document": folders.DOCUMENTS}
PRECISIONS = ("float32", "bfloat16", "int8")
COLBERT, SPARSE = "colbert_linear.pt", "sparse_linear.pt"


def load(**options):
    return Engine.load(folder_of_m3(), **options)


@pytest.mark.parametrize("role", ROLES)
def test_the_numbers_of_torch(role, backend):
    engine, some = load(backend=backend), ROLES[role]
    np.testing.assert_allclose(engine.encode(some), EXPECTED[f"{role} dense"], atol=1e-5)
    vectors = engine.encode_tokens(some)
    assert [len(row) for row in vectors] == EXPECTED[f"{role} sizes"].tolist()
    np.testing.assert_allclose(np.concatenate(vectors), EXPECTED[f"{role} vectors"], atol=1e-5)
    found = engine.encode_sparse(some)
    assert found.shape == (len(some), 320)
    assert np.diff(found.indptr).tolist() == EXPECTED[f"{role} counts"].tolist()
    assert found.indices.tolist() == EXPECTED[f"{role} ids"].tolist()
    np.testing.assert_allclose(found.values, EXPECTED[f"{role} weights"], atol=1e-5)


def test_scores(backend):
    engine = load(backend=backend)
    queries, documents = (engine.encode_tokens(some) for some in ROLES.values())
    found = engine.similarity(queries, documents)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, EXPECTED["colbert"], atol=1e-5)
    pairs = engine.similarity_pairwise(queries, documents[: len(queries)])
    np.testing.assert_allclose(pairs, np.diag(EXPECTED["colbert"]), atol=1e-5)
    np.testing.assert_allclose(engine.similarity(queries[0], documents), EXPECTED["colbert"][:1], atol=1e-5)
    np.testing.assert_allclose(engine.similarity(queries, [documents[2].tolist()]), EXPECTED["colbert"][:, 2:3],
                               atol=1e-5)
    padded = np.zeros((2, 20, 24), np.float32)
    for row, query in zip(padded, queries[:2], strict=True):
        row[: len(query)] = query
    np.testing.assert_allclose(engine.similarity(padded, documents), EXPECTED["colbert"][:2], atol=1e-5)
    lexical = engine.similarity(engine.encode_sparse(folders.QUERIES), engine.encode_sparse(folders.DOCUMENTS))
    np.testing.assert_allclose(lexical, EXPECTED["lexical"], atol=1e-5)


def test_vectors_of_texts_are_compared_by_their_cosines():
    engine = load()
    queries, documents = (engine.encode(some) for some in ROLES.values())
    assert engine.similarity_fn_name == "cosine"
    for a in (queries, list(queries), queries.tolist()):
        np.testing.assert_allclose(engine.similarity(a, documents), queries @ documents.T, atol=1e-5)
    np.testing.assert_allclose(engine.similarity_pairwise(queries, documents[:6]),
                               (queries * documents[:6]).sum(axis=1), atol=1e-5)


@pytest.mark.parametrize(("given", "expected"), [
    (np.ones(3), False), (np.ones((2, 3)), False), (np.ones((1, 2, 3)), True), ([np.ones((2, 3))], True),
    ([np.ones(3)], False), ([[1.0, 2.0]], False), ([[[1.0, 2.0]]], True), ([], False), ([[]], False), ("abc", False),
    (["a"], False), (({},), False), (None, False), (3, False), ([np.ones((0, 3))], True), ([[np.ones(3)]], True),
])
def test_the_form_of_vectors_of_tokens(given, expected):
    assert are_of_tokens(given) == expected


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_text_in_any_company(precision, compiled_backend, check_company):
    some, loaded = [*folders.QUERIES, *folders.DOCUMENTS], partial(load, backend=compiled_backend, precision=precision)
    engine = loaded()
    for call in (Engine.encode_tokens, Engine.encode_sparse):
        check_company(loaded, call, some)
        expected, single = call(engine, some), call(engine, some[0])
        assert same(call(engine, some, batch_size=3), expected)
        assert same(single, expected[0])


@pytest.mark.parametrize("precision", PRECISIONS[1:])
def test_other_precisions_are_near(precision, compiled_backend):
    engine = load(backend=compiled_backend, precision=precision)
    for role, some in ROLES.items():
        vectors = np.concatenate(engine.encode_tokens(some))
        assert (vectors * EXPECTED[f"{role} vectors"]).sum(axis=1).min() > 0.98
    lexical = engine.similarity(engine.encode_sparse(folders.QUERIES), engine.encode_sparse(folders.DOCUMENTS))
    np.testing.assert_allclose(lexical, EXPECTED["lexical"], atol=0.2)


def test_what_the_model_has():
    engine = load()
    assert list(engine.heads) == ["encode_sparse", "encode_tokens"]
    assert engine.heads["encode_sparse"].steps == (HeadLinear("sparse_linear", 1, activation="relu"),
                                                   Scatter(320, (0, 1, 2, 3)))
    assert engine.heads["encode_tokens"].steps == (HeadLinear("colbert_linear", 24), HeadNormalize())
    assert engine.get_embedding_dimension() == 24
    assert engine.encode_query("a").shape == engine.encode_document("a", prompt="in ").shape == (24,)
    assert engine.encode_tokens([]) == []
    assert engine.encode_sparse([]).shape == (0, 320)
    assert engine.encode_tokens("a", prompt="Anna ").tobytes() == engine.encode_tokens("Anna a").tobytes()
    assert engine.encode_tokens("a", task="query").tobytes() == engine.encode_tokens("a", task=None).tobytes()
    assert engine.encode_tokens([("a", "Anna")])[0].shape[1] == 24
    few = engine.encode_sparse(folders.DOCUMENTS[0], max_active_dims=2)
    assert few.decode() == [engine.encode_sparse(folders.DOCUMENTS[0]).decode()[0][:2]]
    some = ROLES["document"]        # a second division by the length would change last bits of some
    assert same(engine.encode_tokens(some, normalize_embeddings=True), engine.encode_tokens(some))
    again = pickle.loads(pickle.dumps(engine))
    assert again.encode_tokens("a").tobytes() == engine.encode_tokens("a").tobytes()
    with pytest.raises(InputError, match='task must be "query", "document" or None'):
        engine.encode_tokens("a", task="passage")
    with pytest.raises(UnsupportedError, match=r"no head to tag; it has heads: encode_sparse, encode_tokens$"):
        engine.tag("a")


def test_prompts_of_the_folder(tmp_path):
    folder = write_m3(tmp_path / "m3")
    write_json(folder / "config_sentence_transformers.json", {"prompts": {"query": "Anna: ", "passage": "in "}})
    engine = Engine.load(folder)
    assert engine.encode_tokens("a", task="query").tobytes() == engine.encode_tokens("Anna: a", prompt="").tobytes()
    assert engine.encode_tokens("a").tobytes() == engine.encode_tokens("in a", prompt="").tobytes()


# Files of the engine


def test_a_file_gives_the_bits_of_its_folder(tmp_path):
    path = tmp_path / "m3.npz"
    assert main(["convert", str(folder_of_m3()), str(path)]) == 0
    folder, file = load(), Engine.load(path)
    assert file.heads == folder.heads
    assert file.similarity_fn_name == "cosine"
    some = folders.DOCUMENTS
    assert file.encode(some).tobytes() == folder.encode(some).tobytes()
    assert same(file.encode_tokens(some), folder.encode_tokens(some))
    assert same(file.encode_sparse(some), folder.encode_sparse(some))
    save(load_model(path), tmp_path / "again.npz")
    assert (tmp_path / "again.npz").read_bytes() == path.read_bytes()
    with np.load(path) as arrays:
        assert json.loads(bytes(arrays["config"]))["version"] == 4
        assert arrays["heads.encode_tokens.colbert_linear.weight"].dtype == np.float32


@pytest.mark.parametrize("option", [("--precision", "int8"), ("--precision", "bfloat16"), ("--packed",),
                                    ("--precision", "int4")])
def test_converted_files_keep_the_heads(tmp_path, option):
    path = tmp_path / "m3.npz"
    assert main(["convert", str(folder_of_m3()), str(path), *option]) == 0
    engine = Engine.load(path)
    assert engine.heads == load().heads
    vectors = np.concatenate(engine.encode_tokens(folders.QUERIES))
    assert (vectors * EXPECTED["query vectors"]).sum(axis=1).mean() > 0.9
    assert engine.encode_sparse(folders.QUERIES).shape == (6, 320)
    assert option != ("--packed",) or vectors.tobytes() == np.concatenate(
        load().encode_tokens(folders.QUERIES)).tobytes()


def test_routes_keep_the_heads(tmp_path):
    """A router whose documents are read by a BGE-M3."""
    folder = write_router(tmp_path / "router", "no default")
    home = folder / "0_Router" / "document_0_Transformer"
    shutil.rmtree(home)
    write_m3(home)
    save(load_model(folder), tmp_path / "m3.npz")
    expected = load(threads=1).encode_tokens("Anna lives")
    for path in (folder, tmp_path / "m3.npz"):
        engine = Engine.load(path, threads=1)
        assert list(engine.routes["document"].heads) == ["encode_sparse", "encode_tokens"]
        assert engine.routes["document"].encode_tokens("Anna lives", prompt="").tobytes() == expected.tobytes()
        assert len(engine.encode_sparse(["Anna lives"], task="document", prompt="").values)


# Folders


def changed(folder, file, **tensors):
    """Write the folder with a file of these tensors."""
    write_m3(folder)
    (folder / file).write_bytes(checkpoint(tensors))
    return folder


@pytest.mark.parametrize(("file", "kept", "message"), [
    (SPARSE, "encode_tokens", "no head to encode sparsely; it has heads: encode_tokens$"),
    (COLBERT, "encode_sparse", "this model has one vector for each text, which encode returns; encode_tokens is for"),
])
def test_a_folder_with_one_of_the_two_files_has_one_of_the_two_heads(tmp_path, file, kept, message):
    folder = write_m3(tmp_path / "m3")
    (folder / file).unlink()
    engine = Engine.load(folder)
    assert list(engine.heads) == [kept]
    assert engine.encode("a").shape == (24,)
    other = engine.encode_sparse if file == SPARSE else engine.encode_tokens
    with pytest.raises(UnsupportedError, match=message):
        other("a")


W, B = np.ones((24, 24), np.float32), np.zeros(24, np.float32)
NAN = np.full((24, 24), np.nan, np.float32)
WRONG = [
    (COLBERT, {"weight": W[:, :23], "bias": B}, r"colbert_linear.weight is float32 \[24, 23\], expected float32"),
    (COLBERT, {"weight": W, "bias": B[:3]}, r"colbert_linear.bias is float32 \[3\], expected float32 \[24\]"),
    (COLBERT, {"weight": NAN, "bias": B}, "colbert_linear.weight holds NaN or infinity"),
    (COLBERT, {"weight": W, "bias": B - np.float32(np.inf)}, "colbert_linear.bias holds NaN or infinity"),
    (COLBERT, {"weight": W}, r"colbert_linear.pt: expected .* bias \[out\], not weight \[24, 24\]$"),
    (COLBERT, {"weight": B, "bias": B}, r"the state dict of a torch.nn.Linear.*not weight \[24\], bias \[24\]"),
    (COLBERT, {"weight": W, "bias": B, "more": B}, r"colbert_linear.pt: expected .* more \[24\]$"),
    (SPARSE, {"weight": W, "bias": B}, r"sparse_linear.weight is float32 \[24, 24\], expected float32 \[1, 24\]"),
    (SPARSE, {"weight": W[:1], "bias": B[:2]}, r"sparse_linear.bias is float32 \[2\], expected float32 \[1\]"),
    (SPARSE, {"linear.weight": W[:1], "linear.bias": B[:1]}, r"sparse_linear.pt: expected .* not linear.weight"),
    (SPARSE, {"weight": W[:1].astype(np.int64), "bias": B[:1]}, "tensor 'weight' has the kind Long"),
]


@pytest.mark.parametrize(("file", "tensors", "message"), WRONG)
def test_wrong_files_are_refused(tmp_path, file, tensors, message):
    with pytest.raises(WeightsError, match=message):
        Engine.load(changed(tmp_path / "m3", file, **tensors))


def test_broken_files_are_refused(tmp_path):
    folder = write_m3(tmp_path / "m3")
    whole = (folder / COLBERT).read_bytes()
    for data in (b"", b"PK", whole[:100], whole[:-200], pickle.dumps({"weight": [1.0]}), b"x" * 3000):
        (folder / COLBERT).write_bytes(data)
        with pytest.raises(WeightsError, match=r"torch.save\(part.state_dict\(\), 'colbert_linear.pt'\)"):
            Engine.load(folder)
    (folder / COLBERT).unlink()
    (folder / COLBERT).mkdir()
    with pytest.raises(WeightsError, match=r"colbert_linear.pt: is not a regular file"):
        Engine.load(folder)


def test_all_kinds_of_files_of_torch_are_read(tmp_path):
    folder = write_m3(tmp_path / "m3")
    expected = load(threads=1).encode_tokens("Anna lives")
    arrays = read_checkpoint(folder / COLBERT)
    for legacy in (False, True):
        for dtype in ("float16", "float32", "float64"):
            (folder / COLBERT).write_bytes(checkpoint({name: array.astype(dtype) for name, array in arrays.items()},
                                                      legacy))
            for memory in ("map", "copy"):
                found = Engine.load(folder, threads=1, memory=memory).encode_tokens("Anna lives")
                assert found.tobytes() == expected.tobytes()
    (folder / COLBERT).write_bytes(checkpoint({name: to_bfloat16(array) for name, array in arrays.items()}))
    found = Engine.load(folder, threads=1).encode_tokens("Anna lives")
    np.testing.assert_allclose(found, expected, atol=0.02)


def test_vectors_of_another_width(tmp_path):
    rng = np.random.default_rng(0)
    folder = changed(tmp_path / "m3", COLBERT, weight=rng.standard_normal((7, 24), np.float32), bias=B[:7])
    engine = Engine.load(folder)
    assert engine.encode_tokens("Anna lives").shape[1] == 7
    assert engine.similarity(engine.encode_tokens(["a", ""]), engine.encode_tokens(["b"])).shape == (2, 1)
    assert engine.get_embedding_dimension() == 24


def test_a_folder_without_modules_json(tmp_path):
    """FlagEmbedding needs no file of sentence-transformers."""
    folder = write_m3(tmp_path / "m3")
    (folder / "modules.json").unlink()
    expected, found = load(), Engine.load(folder)
    assert same(found.encode_sparse(folders.QUERIES), expected.encode_sparse(folders.QUERIES))


def test_a_folder_without_a_tokenizer_has_no_heads(tmp_path):
    folder = write_m3(tmp_path / "m3")
    (folder / "tokenizer.json").unlink()
    engine = Engine.load(folder)
    assert engine.heads == {}
    assert engine.forward([[2, 5, 3]])[0].shape == (3, 24)
    with pytest.raises(UnsupportedError, match="came without a tokenizer"):
        engine.encode("a")


@pytest.mark.parametrize(("settings", "skipped"), [
    ({}, (0, 1, 2, 3)), ({"eos_token": None}, (0, 1, 2)), ({"eos_token": "none of the tokens"}, (0, 1, 2)),
    ({"unk_token": "<mask>"}, (0, 2, 3, 4)), ({"cls_token": {"content": "</s>"}}, (0, 1, 3)),
])
def test_the_tokens_that_do_not_count_are_those_of_the_tokenizer(tmp_path, settings, skipped):
    folder = write_m3(tmp_path / "m3")
    write_json(folder / "tokenizer_config.json", folders.TOKENIZER | settings)
    engine = Engine.load(folder)
    assert engine.heads["encode_sparse"].steps[1].skip_ids == skipped
    assert not np.isin(engine.encode_sparse(folders.QUERIES).indices, skipped).any()


def test_a_wrong_token_is_refused(tmp_path):
    folder = write_m3(tmp_path / "m3")
    write_json(folder / "tokenizer_config.json", folders.TOKENIZER | {"eos_token": 7})
    with pytest.raises(WeightsError, match="eos_token must be a text, not 7"):
        Engine.load(folder)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_other_models_leave_the_files_unread(tmp_path):
    """A MultiVectorEncoder has its own map of tokens."""
    folder = late_folders.write_late(tmp_path / "late", "bert")
    for file in (COLBERT, SPARSE):
        (folder / file).write_bytes(b"not of torch")
    assert list(Engine.load(folder).heads) == ["tag", "encode_tokens"]


def test_a_large_number_of_a_text_that_repeats_a_token():
    """The number of an id is the largest of its tokens, and not the first or the sum."""
    engine = load(threads=1)
    text = folders.DOCUMENTS[8]
    ids = np.array(engine.tokenizer.encode(text))
    vectors = engine.encode(text, output_value="token_embeddings")
    arrays = read_checkpoint(folder_of_m3() / SPARSE)
    numbers = np.maximum(vectors @ arrays["weight"][0] + arrays["bias"][0], 0)
    found = engine.encode_sparse(text)
    several = [i for i in found.indices.tolist() if (ids == i).sum() > 1]
    assert len(several) >= 3
    assert any(numbers[ids == i][0] < numbers[ids == i].max() for i in several)
    for i, value in zip(found.indices.tolist(), found.values.tolist(), strict=True):
        assert value == pytest.approx(numbers[ids == i].max(), abs=1e-5)


# Heads as values


def test_an_impossible_head_is_refused(refusals):
    def call(head):
        usual = {"task": "encode_tokens", "rows": "rest", "steps": (HeadLinear("a", 3), HeadNormalize())}
        HeadConfig(**usual | head)

    refusals(call, [
        {"rows": "first"}, {"steps": (HeadLinear("a", 3), Mean())}, {"steps": (HeadNormalize(),)},
        {"steps": (HeadLinear("a", 1), Scatter(9))}, {"task": "encode_sparse", "rows": "rest"},
        {"task": "encode_sparse", "rows": "all"},
        {"task": "encode_sparse", "rows": "all", "steps": (Scatter(9), Scatter(9))},
        {"task": "encode_sparse", "rows": "all", "steps": (Scatter(9, (-1,)),)},
        {"task": "encode_sparse", "rows": "all", "steps": (Scatter(9, [1]),)},
    ])


def test_a_head_comes_back_from_json():
    for head in load().heads.values():
        assert HeadConfig.from_json(json.loads(json.dumps(head.to_json()))) == head
    old = HeadConfig("encode_sparse", "all", (Scatter(9),))
    assert old.to_json()["steps"] == [{"step": "scatter", "size": 9}]
    assert HeadConfig.from_json(old.to_json()) == old
    for wrong in ({"step": "scatter"}, {"step": "scatter", "size": 9, "ids": []},
                  {"step": "scatter", "size": 9, "skip_ids": 3}, {"step": "normalize", "size": 9}):
        with pytest.raises(WeightsError):
            HeadConfig.from_json(old.to_json() | {"steps": [wrong]})


def test_a_head_that_does_not_fit_the_vocabulary_is_refused():
    head = HeadConfig("encode_sparse", "all", (HeadLinear("a", 1), Scatter(9)))
    assert head.shapes(24, (9, 24)) == {"a.weight": (1, 24), "a.bias": (1,)}
    with pytest.raises(WeightsError, match="1 number for each of 9 tokens, and there are 8 tokens with 1 numbers each"):
        head.shapes(24, (8, 24))
    with pytest.raises(WeightsError, match="there are 9 tokens with 24 numbers each"):
        HeadConfig("encode_sparse", "all", (Scatter(9),)).shapes(24, (9, 24))
