"""Static models, chains of modules and routes are those of sentence-transformers and model2vec.

tests/golden/make/modules.py wrote the vectors of the folders in tests/tools/module_folders.py, and embedders.py those
of embedders in the forms of published ones, of the folders in tests/tools/embedder_folders.py.
"""

import dataclasses
import json
import pickle

import numpy as np
import pytest

from engine import Engine, InputError, Reranker, UnsupportedError, WeightsError, convert_model, load_model, save
from engine.cli.main import main
from engine.files.safetensors import read_safetensors
from engine.model.config import static_config

from ..tools import embedder_folders
from ..tools import module_folders as folders
from ..tools.head_texts import TEXTS
from ..tools.paths import HEADS
from ..tools.tiny_models import write_json

pytest.importorskip("tokenizers")

EXPECTED = np.load(HEADS / "modules.npz")


@pytest.mark.parametrize("name", folders.STATICS)
def test_static_models(tmp_path, name, backend):
    engine = Engine.load(folders.write_static(tmp_path / "folder", name), backend=backend)
    found = engine.encode(list(TEXTS))
    assert np.abs(found - EXPECTED[f"static {name}"]).max() <= 1e-5 * max(1, np.abs(found).max())


@pytest.mark.parametrize("part", range(8))
def test_chains_of_modules(tmp_path, part, one_backend):
    for seed in range(part, folders.CHAINS, 8):
        engine = Engine.load(folders.write_chain(tmp_path / str(seed), seed), backend=one_backend)
        found, expected = engine.encode(list(TEXTS[:4])), EXPECTED[f"chain {seed}"]
        assert found.shape == expected.shape
        assert np.abs(found - expected).max() <= 1e-5, seed


@pytest.mark.parametrize("name", embedder_folders.EMBEDDERS)
def test_embedders_in_the_forms_of_published_ones(tmp_path, name, one_backend):
    engine = Engine.load(embedder_folders.write_embedder(tmp_path / "folder", name), backend=one_backend)
    found = engine.encode(list(TEXTS[:6]))
    with np.load(HEADS / "embedders.npz") as expected:
        assert np.abs(found - expected[name]).max() <= 1e-5


@pytest.mark.parametrize("name", folders.ROUTERS)
def test_routes(tmp_path, name, one_backend):
    engine = Engine.load(folders.write_router(tmp_path / "folder", name), backend=one_backend)
    cases = {key.rpartition(", ")[2]: array for key, array in EXPECTED.items() if key.startswith(f"route {name}, ")}
    some = list(TEXTS[:12])
    for task, expected in cases.items():
        options = {} if task == "none" else {"task": task.removeprefix("encode_")}
        if name == "sparse query":
            prompt = {"prompt_name": options["task"]} if task.startswith("encode_") else {}
            found = engine.encode_sparse(some, **options, **prompt).to_dense()
        elif task.startswith("encode_"):
            found = getattr(engine, task)(some)
        else:
            found = engine.encode(some, **options)
        assert np.abs(found - expected).max() <= 1e-5, task


KINDS = {"static float32": lambda folder: folders.write_static(folder, "float32"),
         "static model2vec mapping": lambda folder: folders.write_static(folder, "model2vec mapping"),
         "static model2vec scaled int8": lambda folder: folders.write_static(folder, "model2vec scaled int8"),
         "chain": lambda folder: folders.write_chain(folder, 5),
         "static query": lambda folder: folders.write_router(folder, "static query"),
         "asymmetric maps": lambda folder: folders.write_router(folder, "asymmetric maps"),
         "no default": lambda folder: folders.write_router(folder, "no default")}


def results(engine, inputs):
    """Return the vectors of texts by each encoder of a model."""
    return np.concatenate([engine.encode(inputs, task=task) for task in engine.routes or [None]], axis=1)


@pytest.mark.parametrize("name", KINDS)
def test_the_bits_of_a_text_in_any_company_and_in_a_file(tmp_path, name, one_backend):
    folder, some = KINDS[name](tmp_path / "folder"), [*TEXTS[:20], TEXTS[37]]
    whole = results(Engine.load(folder, backend=one_backend, threads=2), some)
    save(load_model(folder), tmp_path / "model.npz")
    for path, threads, most in ((folder, 1, 8192), (folder, 3, 60), (tmp_path / "model.npz", 4, 300)):
        engine = Engine.load(path, backend=one_backend, threads=threads, max_batch_tokens=most)
        assert np.array_equal(results(engine, some[::-1])[::-1], whole)
        assert np.array_equal(results(engine, some[:1]), whole[:1])
    again = pickle.loads(pickle.dumps(engine))
    assert np.array_equal(results(again, some), whole)


def test_sparse_routes_in_a_file(tmp_path, one_backend):
    folder = folders.write_router(tmp_path / "folder", "sparse query")
    save(load_model(folder), tmp_path / "model.npz")
    one, other = (Engine.load(path, backend=one_backend) for path in (folder, tmp_path / "model.npz"))
    for task in ("query", "document"):
        found = other.encode_sparse(TEXTS[:9], task=task)
        assert np.array_equal(found.to_dense(), one.encode_sparse(TEXTS[:9], task=task).to_dense())
        assert np.array_equal(found[2].values, other.encode_sparse(TEXTS[2], task=task).values)
    with pytest.raises(UnsupportedError, match="encode_sparse returns its sparse vectors"):
        other.encode_query("a")
    assert list(other.routes["query"].heads) == ["encode_sparse"]
    few = other.encode_sparse(TEXTS[:9], task="query", max_active_dims=2)
    assert max(np.diff(few.indptr)) == 2


def test_routes_share_what_they_can(tmp_path, one_backend):
    folder = folders.write_router(tmp_path / "folder", "asymmetric maps")
    model = load_model(folder)
    engine = Engine(model, backend=one_backend)
    assert engine.routes["query"]._plan is engine.routes["document"]._plan
    save(model, tmp_path / "model.npz")
    names = list(np.load(tmp_path / "model.npz"))
    assert len([name for name in names if name.endswith("embeddings.word")]) == 1
    converted = convert_model(model, "int8")
    words = [part.weights["embeddings.word"] for part in converted.parts.values()]
    assert words[0].dtype == np.int8
    assert words[0] is words[1]
    assert list(engine.routes) == ["query", "document"]
    assert engine.routes["query"] is engine     # the first is the default


def test_a_static_model_beside_others(tmp_path, one_backend):
    folder = folders.write_router(tmp_path / "folder", "static query")
    engine = Engine.load(folder, backend=one_backend, precision="int8")
    assert {task: own.precision for task, own in engine.routes.items()} == {"query": "float32", "document": "int8"}
    assert np.array_equal(engine.encode_query("a"), engine.encode("Anna: a", prompt="", task="query"))
    with pytest.raises(InputError, match="task must be one of 'query', 'document', the routes of this model, not 'x'"):
        engine.encode("a", task="x")
    with pytest.raises(UnsupportedError, match="this model has routes: query, document; choose a precision"):
        Engine.load(folder, backend=one_backend, precision="auto")
    with pytest.raises(InputError, match="has none; leave it out"):
        Engine.load(folder, task="query")
    no_default = folders.write_router(tmp_path / "needs", "no default")
    for path in (folder, no_default):
        with pytest.raises(UnsupportedError, match="this is an encoder"):
            Reranker.load(path)
        with pytest.raises(UnsupportedError, match="a reranker has one encoder, and this model has routes: query, doc"):
            Reranker(load_model(path))
    needs = Engine.load(no_default, backend=one_backend)
    with pytest.raises(InputError, match="not None"):
        needs.encode("a")


def test_a_static_model_alone(tmp_path, one_backend):
    folder = folders.write_static(tmp_path / "folder", "float32")
    engine = Engine.load(folder, backend=one_backend, precision="auto")
    assert engine.precision == "float32"
    assert "0 layers of width 24" in repr(engine)
    assert engine.max_seq_length is None
    assert engine.get_embedding_dimension() == folders.D
    table = load_model(folder).encoder.weights["embeddings.word"]
    assert np.array_equal(engine.forward([[1, 2], [], [7]])[2], table[7:8])
    assert not engine.encode("").any()
    with pytest.raises(UnsupportedError, match="multiplies nothing, so precision='int8' would change nothing"):
        Engine.load(folder, backend=one_backend, precision="int8")
    with pytest.raises(UnsupportedError, match="no head to classify"):
        engine.classify("a")
    save(convert_model(load_model(folder), "int8"), tmp_path / "model.npz")
    narrow = Engine.load(tmp_path / "model.npz", backend=one_backend)
    assert cosines(narrow.encode(TEXTS[:7]), engine.encode(TEXTS[:7])).min() > 0.999


def cosines(a, b):
    return (a * b).sum(axis=1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)


def test_a_text_with_more_tokens_than_are_computed_together_is_named(tmp_path):
    """A static model has no limit on the tokens of a text, and the reference none on those that it computes."""
    path = folders.write_static(tmp_path / "model", "float16")
    texts = ["Anna", "Berlin is " + "good " * 20, "the end"]
    with pytest.raises(InputError, match=r"the text that begins with 'berlin is good .* has 23 tokens, and "
                                         r"max_batch_tokens=16 bounds what is computed together"):
        Engine.load(path, threads=1, max_batch_tokens=16).encode(texts)
    assert Engine.load(path, backend="reference", max_batch_tokens=16).encode(texts).shape == (3, folders.D)


def test_wrong_tables_are_refused(refusals):
    def call(tmp_path, name, changes):
        folder = folders.write_static(tmp_path / "folder", name)
        tensors = read_safetensors(folder / "model.safetensors", keep_integers=True) | changes
        folders.write_tensors(folder, **{name: array for name, array in tensors.items() if array is not None})
        load_model(folder)

    refusals(call, [
        ("float32", {"embedding.weight": None, "other": np.ones(3, np.float32)}),
        ("float32", {"embedding.weight": np.ones(9, np.float32)}), ("model2vec mapping", {"mapping": np.full(320, 40)}),
        ("model2vec mapping", {"mapping": np.full(320, -1)}),
        ("model2vec mapping", {"mapping": np.ones(320, np.float32)}), ("model2vec weights", {"weights": np.ones(3)}),
        ("model2vec", {"embeddings": np.full((320, 24), np.nan, np.float32)}),
    ])


def test_wrong_routes_are_refused(refusals):
    def call(tmp_path, file, values):
        folder = folders.write_router(tmp_path / "folder", "static query")
        write_json(folder / file, json.loads((folder / file).read_text(encoding="utf-8")) | values)
        load_model(folder)

    refusals(call, [
        ("0_Router/router_config.json", {"types": []}),
        ("0_Router/router_config.json", {"structure": {"query": ["x"]}}),
        ("0_Router/router_config.json", {"parameters": {"default_route": "x"}}),
        ("0_Router/router_config.json", {"parameters": {"route_mappings": {"query": "query"}}}),
        ("0_Router/router_config.json", {"types": {"query_0_StaticEmbedding": "my.Code", "document_0_Transformer": "T",
         "document_1_Pooling": "P"}}),
    ])


def test_two_routers_and_folders_outside_are_refused(tmp_path):
    folder = folders.write_router(tmp_path / "folder", "static query")
    folders.write_modules(folder, [("Router", "0_Router"), ("Router", "0_Router")])
    with pytest.raises(UnsupportedError, match="there are 2 modules Router"):
        load_model(folder)
    folder = folders.write_router(tmp_path / "other", "static query")
    path = folder / "0_Router" / "router_config.json"
    path.write_text(path.read_text(encoding="utf-8").replace("query_0_StaticEmbedding", "../../outside"))
    with pytest.raises(WeightsError, match="leaves the model's folder"):
        load_model(folder)


def test_numbers_of_tokens_in_a_file(tmp_path, one_backend):
    folder = tmp_path / "folder"
    folders.write_modules(folder, [("SparseStaticEmbedding", "")], model_type="SparseEncoder")
    folders.tokenizer_of(folder)
    write_json(folder / "config.json", {"path": "idf.json"})
    write_json(folder / "idf.json", {"a": 2.5, "b": -1, "[CLS]": 9.0})
    found = Engine.load(folder, backend=one_backend).encode_sparse(["a b a", "", "c"])
    assert sorted(dict(found.decode()[0]).items()) == [("a", 2.5), ("b", -1.0)]
    assert np.diff(found.indptr).tolist() == [2, 0, 0]
    write_json(folder / "idf.json", {"a": "2.5"})
    with pytest.raises(WeightsError, match="expected a number for each token of the tokenizer, not '2"):
        load_model(folder)


@pytest.mark.parametrize("changes", [{"num_heads": 2}, {"embedding_norm": True}, {"max_positions": 5}, {"norm": "rms"},
                                     {"vocab_size": 0}, {"hidden_size": 0}])
def test_impossible_static_models(changes):
    with pytest.raises(WeightsError, match=r"a word table alone, and no|must be at least 1"):
        dataclasses.replace(static_config("static", 8, 20), **changes)


def test_the_command_line(tmp_path, capsys):
    folder = folders.write_router(tmp_path / "folder", "static query")
    (tmp_path / "texts.txt").write_text("Anna\n", encoding="utf-8")
    main(["encode", str(folder), str(tmp_path / "texts.txt"), "-o", str(tmp_path / "out.npy"), "--route", "query"])
    expected = Engine.load(folder).encode(["Anna"], task="query")
    assert np.array_equal(np.load(tmp_path / "out.npy"), expected)
    main(["compare", str(folders.write_static(tmp_path / "static", "float32")), "--precision", "int8", "--data",
          str(tmp_path / "texts.txt")])
    assert "mean 0.9999" in capsys.readouterr().out
    main(["info", str(folder)])
    shown = capsys.readouterr().out
    assert "none: the vector of a token is a row of the table, width 24" in shown
    assert "\nquery\n" in shown
    assert "pooling cls, normalised" in shown
