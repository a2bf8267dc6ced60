"""`save_pretrained` of the classes of sentence-transformers writes a folder that gives the same results."""

import json
from pathlib import Path

import numpy as np
import pytest

from engine import EngineError, UnsupportedError
from engine.adapters import sentence_transformers as ours
from engine.loading.load import load_model
from engine.loading.npz_model import save

from ..tools.head_models import write_folder
from ..tools.late_folders import write_late, write_older
from ..tools.module_folders import TYPES, write_chain, write_router, write_static
from ..tools.tiny_models import write_json, write_modules_json

pytest.importorskip("tokenizers")

TEXTS = ["Anna lives in Berlin and works for Bilal.", "good", "a house", ""]
PROMPTS = {"query": "Chen: ", "document": "in "}


def changed_and_read_again(model, folder):
    """Change the settings that every encoder has; return the model that was saved and loaded."""
    model.prompts, model.default_prompt_name, model.similarity_fn_name = dict(PROMPTS), "query", "euclidean"
    model.save_pretrained(folder)
    again = type(model)(str(folder))
    assert (again.prompts, again.default_prompt_name, again.similarity_fn_name) == (PROMPTS, "query", "euclidean")
    return again


def test_a_model_of_vectors(tmp_path):
    model = ours.SentenceTransformer(str(write_chain(tmp_path / "old", 3)))
    plain = model.encode(TEXTS)
    model.max_seq_length, model.truncate_dim = 7, 3
    model.set_pooling_include_prompt(False)
    again = changed_and_read_again(model, tmp_path / "new" / "folder")
    assert (again.max_seq_length, again.truncate_dim) == (7, 3)
    assert np.array_equal(again.encode(TEXTS), model.encode(TEXTS))
    assert not np.array_equal(again.encode(TEXTS), plain[:, :3])
    again.truncate_dim = None
    again.save_pretrained(tmp_path / "whole")
    assert ours.SentenceTransformer(str(tmp_path / "whole")).encode(TEXTS).shape == plain.shape


def test_the_limit_of_a_tokenizer(tmp_path):
    folder = write_folder(tmp_path / "old", "bert_fill_mask")
    write_json(folder / "sentence_bert_config.json", {"processor_kwargs": {"model_max_length": 9}})
    for limit in (6, None):
        model = ours.SentenceTransformer(str(folder), processor_kwargs={"model_max_length": 9})
        model.max_seq_length = limit
        model.save(tmp_path / str(limit))
        expected = limit or model.engine.config.longest_sequence
        assert ours.SentenceTransformer(str(tmp_path / str(limit))).max_seq_length == expected


def test_a_cross_encoder(tmp_path):
    pairs = [("a", text) for text in TEXTS]
    for name, activation in (("bert_pairs", "identity"), ("bert_pairs_three", "sigmoid")):
        model = ours.CrossEncoder(str(write_folder(tmp_path / name, name)), activation_fn=activation, max_length=6)
        model.save_pretrained(tmp_path / activation)
        again = ours.CrossEncoder(str(tmp_path / activation))
        assert again.max_length == 6
        assert np.array_equal(again.predict(pairs), model.predict(pairs))
    model.activation_fn = "softmax"
    with pytest.raises(EngineError, match=r"activation_fn must be one of 'identity', .* not 'softmax'"):
        model.save_pretrained(tmp_path / "none")
    write_modules_json(tmp_path / "bert_pairs", ("", TYPES["Transformer"]))
    write_json(tmp_path / "bert_pairs" / "config_sentence_transformers.json", {"model_type": "CrossEncoder"})
    model = ours.CrossEncoder(str(tmp_path / "bert_pairs"), activation_fn="tanh", prompts={"query": "Chen: "},
                              default_prompt_name="query")
    model.save_pretrained(tmp_path / "with modules")
    again = ours.CrossEncoder(str(tmp_path / "with modules"))
    assert np.array_equal(again.predict(pairs), model.predict(pairs))


def test_sparse_and_late_and_static_models(tmp_path):
    sparse = ours.SparseEncoder(str(write_router(tmp_path / "router", "sparse query")), max_active_dims=3)
    again = changed_and_read_again(sparse, tmp_path / "sparse")
    assert again.max_active_dims == 3
    for name in ("encode_query", "encode_document"):
        rows, others = (getattr(one, name)(TEXTS, convert_to_tensor=False) for one in (sparse, again))
        assert np.array_equal(rows.to_dense(), others.to_dense())
    plain = ours.SparseEncoder(str(write_folder(tmp_path / "plain", "bert_fill_mask")))
    plain.save_pretrained(tmp_path / "same")
    assert ours.SparseEncoder(str(tmp_path / "same")).similarity_fn_name == "dot"
    limits = {task: sparse.preprocess("good " * 70, task=task)["input_ids"].shape[1] for task in PROMPTS}
    assert limits == {"query": 48, "document": 72}      # each route has a tokenizer of its own
    late = ours.MultiVectorEncoder(str(write_late(tmp_path / "late", "no mask")), prompts=PROMPTS)
    late.similarity_fn_name = "meanmaxsim"
    late.save_pretrained(tmp_path / "new")
    again = ours.MultiVectorEncoder(str(tmp_path / "new"))
    assert (again.prompts, again.similarity_fn_name) == (PROMPTS, "meanmaxsim")
    assert all(map(np.array_equal, again.encode_query(TEXTS), late.encode_query(TEXTS)))
    static = ours.SentenceTransformer(str(write_static(tmp_path / "static", "prompted")))
    again = changed_and_read_again(static, tmp_path / "words")
    assert np.array_equal(again.encode(TEXTS), static.encode(TEXTS))


@pytest.mark.filterwarnings("ignore:.*skiplist_words are no tokens")
def test_what_has_no_place_in_the_files_is_refused(tmp_path):
    plain = ours.SentenceTransformer(str(write_folder(tmp_path / "plain", "bert_fill_mask")), truncate_dim=3)
    table = ours.SentenceTransformer(str(write_static(tmp_path / "static", "float32")))
    table.max_seq_length = 5
    routes = ours.SentenceTransformer(str(write_router(tmp_path / "router", "static query")))
    routes.max_seq_length = 5
    words = ours.SentenceTransformer(str(write_static(tmp_path / "model2vec", "model2vec")))
    words.max_seq_length = 5
    older = ours.MultiVectorEncoder(str(write_older(tmp_path / "pylate", "pylate")), prompts=PROMPTS)
    for model, message in ((plain, "no place for truncate_dim"), (table, "no place for max_seq_length"),
                           (routes, "no place for max_seq_length"), (words, "no place for max_seq_length"),
                           (older, "no place for prompts")):
        with pytest.raises(UnsupportedError, match=message):
            model.save_pretrained(tmp_path / "new")
    plain.truncate_dim = None
    with pytest.raises(UnsupportedError, match="safe_serialization=False"):
        plain.save(tmp_path / "new", safe_serialization=False)
    save(load_model(tmp_path / "plain"), tmp_path / "model.npz")
    with pytest.raises(UnsupportedError, match=r"loaded from the file .*model\.npz"):
        ours.SentenceTransformer(str(tmp_path / "model.npz")).save_pretrained(tmp_path / "new")
    assert not (tmp_path / "new").exists()
    for place, message in (("plain/inside", "must not lie in the folder"), ("model.npz", "is a file")):
        with pytest.raises(EngineError, match=message):
            plain.save_pretrained(tmp_path / place)


def test_the_other_files_of_a_folder(tmp_path):
    folder, card = write_chain(tmp_path / "old", 3), 'SentenceTransformer("sentence_transformers_model_id")\n'
    (folder / "README.md").write_text(card, encoding="utf-8")
    (folder / ".git").mkdir()
    (folder / ".git" / "config").write_text("x", encoding="utf-8")
    model = ours.SentenceTransformer(str(folder))
    before = model.encode(TEXTS)
    model.save_pretrained(tmp_path / "new", model_name="me/mine")
    assert (tmp_path / "new" / "README.md").read_text(encoding="utf-8") == 'SentenceTransformer("me/mine")\n'
    assert not (tmp_path / "new" / ".git").exists()
    model.save_pretrained(tmp_path / "bare", create_model_card=False)
    assert not (tmp_path / "bare" / "README.md").exists()
    model.prompts = {"query": "Chen: "}
    model.save_pretrained(folder)       # in place: the weights, which are mapped, stay
    model.save_pretrained(tmp_path / "new")
    for place in (folder, tmp_path / "new"):
        values = json.loads(Path(place / "config_sentence_transformers.json").read_text(encoding="utf-8"))
        assert values["prompts"] == {"query": "Chen: "}
    assert (folder / "README.md").read_text(encoding="utf-8") == card
    assert np.array_equal(model.encode(TEXTS), before)
