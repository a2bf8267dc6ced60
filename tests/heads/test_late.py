"""Vectors of tokens and MaxSim are those of sentence-transformers; tests/golden/make/late.py wrote them."""

import json
import sys
from functools import cache, partial
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
import pytest

from engine import Engine, InputError, Reranker, UnsupportedError, WeightsError
from engine.backends.ops_interface import Ops
from engine.cli.main import main
from engine.encoding.maxsim import maxsim, pairwise_maxsim
from engine.loading.load import load_model
from engine.loading.npz_model import save
from engine.model.late_config import LateConfig

from ..tools import late_folders as folders
from ..tools.head_models import folder_of as folder_of_head
from ..tools.paths import HEADS
from ..tools.tiny_models import write_json

pytest.importorskip("tokenizers")

# The small vocabularies lack words of the skiplist.
pytestmark = pytest.mark.filterwarnings("ignore:.* of skiplist_words are no tokens:UserWarning")
EXPECTED = np.load(HEADS / "late.npz")


@cache
def folder_of(name):
    write = folders.write_late if name in folders.CASES else folders.write_older
    return write(Path(mkdtemp(prefix="late-")) / "model", name)


def load(name, **options):
    return Engine.load(folder_of(name), **options)


def encode(engine, role):
    some = list(folders.ROLES[role])
    return engine.encode_tokens(some, task=None) if role == "none" else getattr(engine, f"encode_{role}")(some)


@pytest.mark.parametrize("name", [*folders.CASES, *folders.OLDER])
def test_vectors_and_scores_of_sentence_transformers(name, one_backend):
    engine = load(name, backend=one_backend)
    found = {role: encode(engine, role) for role in folders.ROLES}
    for role, rows in found.items():
        assert [len(row) for row in rows] == EXPECTED[f"{name} {role} sizes"].tolist(), role
        np.testing.assert_allclose(np.concatenate(rows), EXPECTED[f"{name} {role}"], atol=1e-4)
    scores = engine.similarity(found["query"], found["document"])
    assert scores.dtype == np.float32
    np.testing.assert_allclose(scores, EXPECTED[f"{name} scores"], rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8"])
def test_a_text_in_any_company(precision, one_backend, check_company):
    for role, call in (("query", Engine.encode_query), ("document", Engine.encode_document)):
        some = folders.ROLES[role]
        check_company(partial(load, "bert", backend=one_backend, precision=precision), call, some)
        engine = load("bert", backend=one_backend, precision=precision)
        assert [call(engine, text).tobytes() for text in some] == [row.tobytes() for row in call(engine, some)]


def test_tokens_that_fill_a_query_are_not_read(one_backend):
    """The vectors of a query's own tokens are those that it has without the others, and no two others are equal."""
    engine = load("bert", backend=one_backend)
    [query] = engine.encode_query(["Who lives"])
    assert query.shape == (16, 16)
    ids = engine.tokenizer.encode("[Q] Who lives")
    plain = engine.encode_tokens(["[Q] Who lives"], task=None)[0]
    assert np.array_equal(query[: len(ids)], plain)
    assert len(np.unique(query, axis=0)) == 16
    assert engine.encode_query([folders.QUERIES[-1]])[0].shape == (16, 16)      # cut, too


def test_files_of_the_engine(tmp_path, one_backend):
    for name in ("bert", "bert attending", "albert", "pylate", "stanford"):
        save(load_model(folder_of(name)), tmp_path / "model.npz")
        engine, again = load(name, backend=one_backend), Engine.load(tmp_path / "model.npz", backend=one_backend)
        assert again.heads == engine.heads
        assert again.similarity_fn_name == engine.similarity_fn_name
        for role in folders.ROLES:
            for row, other in zip(encode(engine, role), encode(again, role), strict=True):
                assert row.tobytes() == other.tobytes()


def test_the_methods_of_the_model(one_backend):
    engine = load("bert", backend=one_backend)
    assert list(engine.heads) == ["tag", "encode_tokens"]
    assert engine.get_embedding_dimension() == 16
    assert engine.encode_tokens([]) == []
    query = engine.encode_query("Who lives")
    assert query.tobytes() == engine.encode_tokens("[Q] Who lives", task="query", prompt="").tobytes()
    assert query.tobytes() == engine.encode_query(["Who lives"], convert_to_numpy=True, batch_size=1)[0].tobytes()
    some, options = list(folders.DOCUMENTS), {"normalize_embeddings": True}     # a second division would change bits
    for row, other in zip(engine.encode_document(some), engine.encode_document(some, **options), strict=True):
        assert row.tobytes() == other.tobytes()
    plain = load("modernbert", backend=one_backend)
    rows = plain.encode_document("Who lives", normalize_embeddings=True)
    np.testing.assert_allclose((rows * rows).sum(axis=1), 1, rtol=1e-5)
    with pytest.raises(UnsupportedError, match=r"encode_tokens return .*engine embed --result tokens"):
        engine.encode("a")
    with pytest.raises(UnsupportedError, match="one vector for each text, which encode returns"):
        Engine.load(folder_of_head("bert_tag"), backend=one_backend).encode_tokens("a")
    with pytest.raises(UnsupportedError, match=r"no head to classify; it has heads: tag \(6 labels\), encode_tokens"):
        engine.classify("a")
    with pytest.raises(InputError, match='task must be "query", "document" or None, not'):
        engine.encode_tokens("a", task="passage")
    with pytest.raises(InputError, match="token_pooling"):
        engine.encode_document("a", token_pooling=3)


def test_ranking_names_the_vectors_of_tokens():
    said = r"encode_tokens; similarity\(encode_query\(query\), encode_document\(documents\)\)"
    for rank in (load("bert", backend="reference").rank, lambda *_: Reranker.load(folder_of("bert"))):
        with pytest.raises(UnsupportedError, match=said):
            rank("a", ["b"])


def test_what_the_command_says_of_the_model(capsys):
    assert main(["info", str(folder_of("bert"))]) == 0
    assert "dense to 16, normalised, a vector for each token, maxsim" in capsys.readouterr().out


def exact_maxsim(queries, documents):
    a, b = ([row.astype(np.float64) for row in rows] for rows in (queries, documents))
    return np.array([[(q @ d.T).max(axis=1).sum() for d in b] for q in a])


@pytest.fixture
def ops(backend) -> Ops:
    from engine.backends import get_backend

    return get_backend(backend).ops(2)


def test_maxsim(ops, monkeypatch):
    rng = np.random.default_rng(0)
    queries, documents = ([rng.standard_normal((T, 19), np.float32) for T in sizes]
                          for sizes in ((1, 5, 0, 33), (7, 1, 130, 2, 64)))
    found, exact = maxsim(ops, queries, documents), exact_maxsim(queries, documents)
    np.testing.assert_allclose(found, exact, rtol=1e-5, atol=1e-4)
    pairs = pairwise_maxsim(ops, queries, documents[:4])
    np.testing.assert_allclose(pairs, np.diag(exact), rtol=1e-5, atol=1e-4)
    counts = np.array([1, 5, 1, 33])
    means = maxsim(ops, queries, documents, mean=True)
    np.testing.assert_allclose(means, exact / counts[:, None], rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(pairwise_maxsim(ops, queries, documents[:4], mean=True), pairs / counts, rtol=1e-6)
    for most in (1, 40, 100):
        monkeypatch.setattr(sys.modules[maxsim.__module__], "MAXIMA_AT_A_TIME", most)
        again = maxsim(ops, queries, documents)
        assert np.array_equal(again, found) or (type(ops).__name__ == "ReferenceOps" and np.allclose(again, found))


def test_infinite_products(ops):
    """Infinity and NaN come out, without a warning of NumPy."""
    large = np.full((1, 4), 3e38, np.float32)
    query = np.concatenate([large, -large, large / 1e38])
    assert np.isnan(maxsim(ops, query, large)).all()
    assert np.isposinf(maxsim(ops, query[::2], large)).all()
    assert np.isposinf(pairwise_maxsim(ops, query[:1], large)).all()


def test_forms_of_vectors(ops):
    rng = np.random.default_rng(1)
    queries, documents = rng.standard_normal((2, 3, 8), np.float32), rng.standard_normal((3, 4, 8), np.float32)
    documents[1, 2:] = 0            # padding, as other libraries have it
    expected = exact_maxsim(queries, [documents[0], documents[1][:2], documents[2]])
    np.testing.assert_allclose(maxsim(ops, queries, documents), expected, rtol=1e-5)
    np.testing.assert_allclose(maxsim(ops, queries.astype(np.float64), [*documents]), exact_maxsim(queries, documents),
                               rtol=1e-5)
    np.testing.assert_allclose(maxsim(ops, queries[0], documents[0]), expected[:1, :1], rtol=1e-5)
    np.testing.assert_allclose(maxsim(ops, [q.tolist() for q in queries], documents.astype(np.float16)),
                               expected, rtol=1e-2)
    assert maxsim(ops, [], documents).shape == (0, 3)
    assert maxsim(ops, queries, []).shape == (2, 0)
    with pytest.warns(UserWarning, match="1 documents have no vectors, such as number 1; their score is -1e.09"):
        found = maxsim(ops, queries, [documents[0], documents[0][:0]], mean=True)
    assert (found[:, 1] == np.float32(-1e9) / 3).all()
    for wrong, message in (("abc", "queries must be a list of arrays"), ([[1.0, 2.0]], "one has the shape .2."),
                           (rng.random((2, 3, 4, 8)), "one has the shape .3, 4, 8."), (3, "not 3"),
                           ([["a"]], r"\[T,D\], not \['a'\]"), ([rng.random((2, 9))], "of 8 and of 9 dimensions")):
        with pytest.raises(InputError, match=message):
            maxsim(ops, wrong, documents)
    with pytest.raises(InputError, match="as many queries as documents, not 2 and 3"):
        pairwise_maxsim(ops, queries, documents)


def changed(folder, name, file, **values):
    """Write the folder of a case with changed entries of a file."""
    folders.write_late(folder, name)
    path = folder / file
    write_json(path, json.loads(path.read_text()) | values)
    return folder


EXPANSION = {"strategy": "fixed", "attend": False, "token": None, "length": 16}
PROMPTS, SETTINGS = "config_sentence_transformers.json", "sentence_bert_config.json"
REFUSED = [
    (UnsupportedError, "query_prefix of PyLate beside model_type 'MultiVectorEncoder'", PROMPTS,
     {"query_prefix": "[Q] "}),
    (WeightsError, "similarity must be one of .*, not 'xtr'", PROMPTS, {"similarity_fn_name": "xtr"}),
    (WeightsError, "query_expansion must have strategy, attend, token, length", SETTINGS, {"query_expansion": [1]}),
    (WeightsError, "expansion must be one of fixed, min", SETTINGS,
     {"query_expansion": EXPANSION | {"strategy": "max"}}),
    (WeightsError, "needs a token of the vocabulary, not 'unheard'", SETTINGS,
     {"query_expansion": EXPANSION | {"token": "unheard"}}),
    (WeightsError, "expansion_length must be a number of tokens", SETTINGS,
     {"query_expansion": EXPANSION | {"length": 0}}),
    (WeightsError, "attend must be true or false, not 1", SETTINGS, {"query_expansion": EXPANSION | {"attend": 1}}),
    (WeightsError, "filled up to 500 tokens, and the model reads 104", SETTINGS,
     {"query_expansion": EXPANSION | {"length": 500}}),
    (WeightsError, "at most query_length = 8 tokens", SETTINGS, {"query_expansion": EXPANSION, "query_length": 8}),
    (WeightsError, "document_length must be a number of tokens", SETTINGS, {"document_length": "many"}),
    (UnsupportedError, "transformer_task = 'retrieval' is not supported", SETTINGS, {"transformer_task": "retrieval"}),
    (UnsupportedError, "threshold is not supported", "2_MultiVectorMask/config.json", {"threshold": 0.5}),
    (WeightsError, "skiplist_words must be a list", "2_MultiVectorMask/config.json", {"skiplist_words": "!"}),
    (WeightsError, "keep_ids must be a tuple", "2_MultiVectorMask/config.json", {"keep_only_token_ids": [-1]}),
    (UnsupportedError, "pads on the left", "tokenizer_config.json", {"padding_side": "left"}),
]


@pytest.mark.parametrize(("kind", "message", "file", "values"), REFUSED)
def test_folders_that_are_refused(tmp_path, kind, message, file, values):
    changed(tmp_path / "model", "bert", file, **values)
    with pytest.raises(kind, match=message):
        Engine.load(tmp_path / "model")


def test_modules_that_are_refused(tmp_path):
    folder = changed(tmp_path / "deberta", "deberta", SETTINGS, query_expansion=EXPANSION)
    with pytest.raises(UnsupportedError, match="attend = false is not supported for deberta-v2"):
        Engine.load(folder)
    folder = changed(tmp_path / "no mask", "no mask", SETTINGS, query_expansion=EXPANSION)
    with pytest.raises(UnsupportedError, match="needs the module MultiVectorMask"):
        Engine.load(folder)
    modules = (tmp_path / "no mask" / "modules.json")
    modules.write_text(modules.read_text().replace("normalize.Normalize", "HierarchicalTokenPooling"))
    with pytest.raises(UnsupportedError, match="the modules are Transformer, Dense, HierarchicalTokenPooling"):
        Engine.load(folder)


OLDER_REFUSED = [
    ("pylate", WeightsError, r"\[R\]  must be put in front of texts as one token", PROMPTS,
     {"query_prefix": "[R] "}),
    ("pylate", WeightsError, "document_prefix must be a text, not 3", PROMPTS, {"document_prefix": 3}),
    ("pylate", WeightsError, "do_query_expansion must be true or false", PROMPTS, {"do_query_expansion": "yes"}),
    ("pylate", WeightsError, "attend_to_mask_tokens must be true or false", PROMPTS,
     {"attend_to_expansion_tokens": 1}),
    ("pylate", WeightsError, "skiplist_words must be a list", PROMPTS, {"skiplist_words": "!"}),
    ("pylate", WeightsError, "document_length must be a number of tokens", PROMPTS, {"document_length": 0}),
    ("pylate", WeightsError, "prompts must map names to texts", PROMPTS, {"prompts": [1]}),
    ("stanford", UnsupportedError, "similarity = 'l2' is not supported", "artifact.metadata", {"similarity": "l2"}),
    ("stanford", UnsupportedError, "interaction = 'flipr'", "artifact.metadata", {"interaction": "flipr"}),
    ("stanford", WeightsError, r"shape \[17, 24\] of dim .* not \[16, 24\]", "artifact.metadata", {"dim": 17}),
    ("stanford", WeightsError, "dim a number of at least 1", "artifact.metadata", {"dim": 0}),
    ("stanford", WeightsError, "query_token_id must be a text", "artifact.metadata", {"query_token_id": 1}),
    ("stanford", WeightsError, "expansion_length must be a number of tokens", "artifact.metadata",
     {"query_maxlen": "32"}),
]


@pytest.mark.parametrize(("name", "kind", "message", "file", "values"), OLDER_REFUSED)
def test_older_folders_that_are_refused(tmp_path, name, kind, message, file, values):
    folder = folders.write_older(tmp_path / "model", name)
    write_json(folder / file, json.loads((folder / file).read_text()) | values)
    with pytest.raises(kind, match=message):
        Engine.load(folder)


def test_a_folder_of_colbert_without_its_settings_or_its_map(tmp_path):
    folder = folders.write_older(tmp_path / "model", "stanford")
    (folder / "artifact.metadata").rename(tmp_path / "kept")
    with pytest.raises(WeightsError, match=r"it names HF_ColBERT, .* are in artifact\.metadata, and there is no such"):
        Engine.load(folder)
    (tmp_path / "kept").rename(folder / "artifact.metadata")
    data = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(data.replace(b"linear.weight", b"linear.wEight"))
    with pytest.raises(WeightsError, match=r"the weights lack linear\.weight, the map of the vectors"):
        Engine.load(folder)


def test_a_tokenizer_with_half_a_character(tmp_path):
    """The library of tokenizers refuses it, also where settings change the file before."""
    folder = folders.write_older(tmp_path / "model", "stanford")
    path, settings = folder / "tokenizer.json", folder / "tokenizer_config.json"
    path.write_bytes(path.read_bytes().replace(b"{", b'{"\\ud800": 0, ', 1))
    for lowers in (True, False):
        write_json(settings, json.loads(settings.read_text()) | {"do_lower_case": lowers, "tokenizer_class": None})
        with pytest.raises(WeightsError, match=r"tokenizer\.json cannot be read"):
            Engine.load(folder).tokenize("Cats purr.")


def test_words_that_the_vocabulary_lacks_are_named(tmp_path):
    folder = folders.write_late(tmp_path / "model", "bert")
    with pytest.warns(UserWarning, match="of skiplist_words are no tokens of the vocabulary"):
        Engine.load(folder)


def test_a_config_is_rebuilt():
    late = LateConfig(20, None, "min", 12, 4, True, (3, 5), ("query",), (7,))
    assert LateConfig.from_json(late.to_json()) == late
    for wrong in ([], {}, late.to_json() | {"more": 1}, late.to_json() | {"skip_ids": [1.5]},
                  late.to_json() | {"expansion": None}):
        with pytest.raises(WeightsError, match="late"):
            LateConfig.from_json(wrong)
