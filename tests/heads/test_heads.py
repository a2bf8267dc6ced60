"""What a head refuses, how files hold it, and the rules that no golden file shows."""

import json
import pickle
import shutil
import time
from dataclasses import replace

import numpy as np
import pytest

import engine
from engine import Engine, InputError, Model, Reranker, TimedOut, UnsupportedError, WeightsError, load_model, save
from engine.base.stop import Stop
from engine.families import jina_bert
from engine.families.heads import read_heads
from engine.heads.answers import Answering, best_answers
from engine.heads.runner import gather, last_other, mean, sigmoid
from engine.methods.workload import head_logits
from engine.model.head import HeadConfig, HeadLinear, HeadNorm, Mean, Scatter
from engine.text.tokenizer import Tokenizer
from engine.text.tokens import Places, Tokens
from engine.weights.head import Head

from ..tools import head_texts as texts
from ..tools.changed_folders import change
from ..tools.encoders import convert_encoder
from ..tools.head_models import expected_of, folder_of, names_of, write_folder
from ..tools.module_folders import TYPES
from ..tools.paths import ENCODERS
from ..tools.tiny_models import random_model, write_json, write_modules_json

pytest.importorskip("tokenizers")


def load(name, **options):
    return Engine.load(folder_of(name), threads=1, **options)


def changed(folder, name, config=None, tensors=None, without=(), rename=str, **settings):
    """Write the folder of a golden model with other values in config.json, and other tensors."""
    return change(write_folder(folder, name, **settings), tensors, keep=lambda key: key not in without, rename=rename,
                  **(config or {}))


# What a model has


def test_heads_are_listed():
    assert Engine(Model(encoder=random_model())).heads == {}
    assert list(load("bert_tag").heads) == ["tag"]
    head = load("bert_classify").heads["classify"]
    assert (head.labels, head.function, head.rows) == (("dull", "lively", "neither"), "softmax", "first")
    assert head.steps == (HeadLinear("dense", 24, activation="tanh"), HeadLinear("classifier", 3))


@pytest.mark.parametrize(("name", "call", "message"), [
    ("bert_classify", lambda model: model.tag("a"), r"no head to tag; it has heads: classify \(3 labels\)$"),
    ("bert_tag", lambda model: model.classify("a"), r"no head to classify; it has heads: tag \(6 labels\)$"),
    ("bert_fill_mask", lambda model: model.predict(("a", "b")), "no head to score pairs; it has heads: fill_mask$"),
    ("bert_classify", lambda model: model.fill_mask("a"), r"no head to fill masks; it has heads: classify \(3 "),
    ("bert_tag", lambda model: model.answer("a", "b"), "no head to answer"),
    ("bert_classify", lambda model: model.rank("a", ["b"]), "rank needs a model with one label, and this one has 3"),
])
def test_an_absent_head_is_named(name, call, message):
    with pytest.raises(UnsupportedError, match=message):
        call(load(name))


def test_a_model_without_heads_says_so():
    with pytest.raises(UnsupportedError, match="no head to classify; it has no heads, and encode gives its vectors"):
        Engine.load(ENCODERS / "bert").classify("a")


def test_an_encoder_with_a_head_still_encodes():
    assert load("bert_classify").encode(["Anna lives in Berlin"]).shape == (1, 24)


# Files


@pytest.mark.parametrize("name", ["bert_classify", "modernbert_mean", "roberta_fill_mask", "bert_untied_fill_mask"])
def test_a_file_gives_the_bits_of_its_folder(tmp_path, name):
    name = {"bert_untied_fill_mask": "bert_untied"}.get(name, name)
    path = tmp_path / "model.npz"
    save(load_model(folder_of(name)), path)
    call = {"classify": lambda model: model.classify(texts.TEXTS[:5], top_k=None),
            "fill_mask": lambda model: model.fill_mask("Anna [MASK] <mask>".replace(
                "[MASK]" if name.startswith("roberta") else "<mask>", "here"))}[expected_of(name)["task"]]
    assert call(Engine.load(path, threads=1)) == call(load(name))
    with np.load(path) as file:
        assert json.loads(bytes(file["config"]))["version"] == 4
        assert any(key.startswith("heads.") for key in file.files)
    again = tmp_path / "again.npz"
    save(load_model(path), again)
    assert again.read_bytes() == path.read_bytes()


def test_a_file_without_heads_has_its_old_version(tmp_path):
    encoder = load_model(folder_of("bert_classify")).encoder
    save(Model(encoder=replace(encoder, heads=())), tmp_path / "model.npz")
    with np.load(tmp_path / "model.npz") as file:
        assert json.loads(bytes(file["config"])).keys() == {"format", "version", "model", "text"}
        assert json.loads(bytes(file["config"]))["version"] == 1


@pytest.mark.parametrize("precision", ["bfloat16", "int8"])
def test_a_converted_model_keeps_its_heads(tmp_path, precision):
    encoder = convert_encoder(load_model(folder_of("bert_fill_mask")).encoder, precision)
    save(Model(encoder=encoder), tmp_path / "model.npz")
    found = Engine.load(tmp_path / "model.npz").fill_mask("Anna [MASK] in Berlin.")
    expected = load("bert_fill_mask").fill_mask("Anna [MASK] in Berlin.")
    assert found[0]["token"] == expected[0]["token"]
    assert found[0]["score"] == pytest.approx(expected[0]["score"], abs=0.02)


def test_a_packed_file_keeps_its_heads(tmp_path):
    from engine.cli.main import main

    folder, path = folder_of("bert_fill_mask"), tmp_path / "packed.npz"
    assert main(["convert", str(folder), str(path), "--packed"]) == 0
    text = "Anna [MASK] in Berlin."
    assert Engine.load(path, threads=1).fill_mask(text) == load("bert_fill_mask").fill_mask(text)


def test_a_pickled_engine_classifies():
    model = load("bert_classify")
    assert pickle.loads(pickle.dumps(model)).classify("lovely") == model.classify("lovely")


# Wrong files


@pytest.mark.parametrize(("change", "error", "message"), [
    ({"tensors": {"classifier.weight": np.zeros((3, 23), np.float32)}}, WeightsError,
     r"classifier.weight is float32 \[3, 23\], expected float32 \[3, 24\]"),
    ({"tensors": {"classifier.bias": np.full(3, np.nan, np.float32)}}, WeightsError, "classifier.bias holds NaN"),
    ({"tensors": {"classifier.weight": np.zeros(3, np.float32)}}, WeightsError, "must have 2 dimensions"),
    ({"without": ("bert.pooler.dense.weight",)}, WeightsError,
     "architectures names 'BertForSequenceClassification', whose head also has pooler.dense.weight"),
    ({"config": {"id2label": {"0": "a", "1": "a", "2": "b"}}}, WeightsError, "must differ, and a is there twice"),
    ({"config": {"id2label": {"0": "a", "7": "b"}}}, WeightsError, "labels up to number 7, and the head has 3 outputs"),
    ({"config": {"id2label": ["a", "b", "c"]}}, WeightsError, "id2label must map numbers to names"),
    ({"config": {"problem_type": "guess"}}, UnsupportedError, "problem_type 'guess' is not supported"),
    ({"config": {"sbert_ce_default_activation_function": "torch.nn.modules.activation.Mish"}}, UnsupportedError,
     "sbert_ce_default_activation_function 'torch.nn.modules.activation.Mish' is not supported; supported are"),
    ({"config": {"sentence_transformers": {"activation_fn": "my.Sigmoid"}}}, UnsupportedError, "no code of a folder"),
    ({"mask_token": 7}, WeightsError, "mask_token must be a text"),
    ({"config": {"id2label": {"1" * 5000: "a"}}}, WeightsError, "id2label must map numbers to names"),
    ({"config": {"id2label": {"0": "\ud800", "1": "b", "2": "c"}}}, WeightsError, "labels must be valid Unicode"),
])
def test_wrong_files_are_refused(tmp_path, change, error, message):
    with pytest.raises(error, match=message):
        Engine.load(changed(tmp_path / "folder", "bert_classify", **change))


def test_a_wrong_vocabulary_of_a_head_is_refused(tmp_path):
    tensors = {"cls.predictions.decoder.weight": np.ones((9, 24), np.float32)}
    folder = changed(tmp_path / "folder", "bert_untied", tensors=tensors)
    with pytest.raises(WeightsError, match=r"bias is float32 \[320\], expected float32 \[9\]"):
        Engine.load(folder)


def test_fewer_labels_than_outputs_are_completed(tmp_path):
    folder = changed(tmp_path / "folder", "bert_classify", {"id2label": {"1": "lively"}})
    with pytest.warns(UserWarning, match="id2label names 1 of 3 labels"):
        model = Engine.load(folder)
    assert model.heads["classify"].labels == ("LABEL_0", "lively", "LABEL_2")


def test_labels_with_other_numbers_are_told(tmp_path):
    other = {"neither": 0, "dull": 1, "lively": "1"}
    folder = changed(tmp_path / "folder", "bert_classify", {"label2id": other})
    with pytest.warns(UserWarning, match="label2id says that 'dull' is number 1, and id2label that it is 0, which is"):
        model = Engine.load(folder)
    assert model.heads["classify"].labels == ("dull", "lively", "neither")


@pytest.mark.parametrize(("name", "stated", "found"), [
    ("bert_classify", None, ["classify"]), ("bert_tag", None, ["tag"]), ("bert_answer", None, ["answer"]),
    ("bert_fill_mask", ["BertForPreTraining"], ["fill_mask"]), ("bert_classify", ["BertModel"], ["classify"]),
    ("bert_tag", ["BertForMultipleChoice"], []), ("bert_fill_mask", ["BertForSequenceClassification"], []),
    ("modernbert_tag", None, []),     # three heads of ModernBERT have the same tensors
    ("roberta_classify", None, ["classify"]), ("distilbert_classify", None, ["classify"]),
])
def test_the_head_is_known_by_architectures_or_its_tensors(tmp_path, name, stated, found):
    folder = changed(tmp_path / "folder", name, {"architectures": stated})
    assert list(Engine.load(folder).heads) == found


def test_words_that_are_not_tied_need_their_tensor(tmp_path):
    folder = changed(tmp_path / "folder", "bert_untied", without=("cls.predictions.decoder.weight",))
    assert json.loads((folder / "config.json").read_text())["tie_word_embeddings"] is False
    with pytest.raises(UnsupportedError, match="no head to fill masks; it has no heads, and encode gives its vectors"):
        Engine.load(folder).fill_mask("[MASK]")


def test_weights_so_large_that_scores_are_nan(tmp_path):
    """Results have their usual form."""
    large = {"cls.predictions.transform.LayerNorm.weight": np.full(24, 3e38, np.float32)}
    found = Engine.load(changed(tmp_path / "words", "bert_fill_mask", tensors=large)).fill_mask("[MASK]", top_k=3)
    assert len(found) == 3
    assert all(np.isnan(one["score"]) for one in found)


def test_words_tied_by_the_config_alone(tmp_path):
    folder = changed(tmp_path / "folder", "eurobert_fill_mask", {"tie_word_embeddings": True},
                     without=("lm_head.weight",))
    assert Engine.load(folder).heads["fill_mask"].steps == (HeadLinear("decoder", 320, bias=False, tied=True),)


@pytest.mark.parametrize(("head", "message"), [
    ({"task": "sing"}, "task must be one of"), ({"rows": "some"}, "rows must be one of"),
    ({"steps": ()}, "1 to 16 steps"), ({"steps": (HeadLinear("a", 2), HeadLinear("a", 2))}, "two steps have one name"),
    ({"labels": ("a",)}, "there are 1 labels for 2 outputs"), ({"labels": ("a", 1)}, "labels must be a tuple of texts"),
    ({"function": "argmax"}, "function must be one of"), ({"pair_function": "mish"}, "pair_function must be one of"),
    ({"steps": (HeadLinear("a b", 2),)}, "the name of a step must be a word"),
    ({"steps": (HeadLinear("a", 0),)}, "the size of a map must be from 1"),
    ({"mask_id": -1}, "mask_id must be a token id"),
    ({"steps": (HeadLinear("a", 2, activation="mish"),)}, "activation must be one of"),
    ({"steps": (HeadNorm("n", 2.0), HeadLinear("a", 2))}, "eps must be a number"),
    ({"task": "answer", "rows": "all", "steps": (HeadLinear("a", 3),), "labels": ()},
     "2 outputs, start and end, not 3"),
    ({"rows": "asked"}, "a head of classify has rows first or last or all or first_two or first_mean, not asked"),
    ({"task": "tag"}, "a head of tag has rows all, not first"),
    ({"task": "fill_mask", "rows": "all"}, "a head of fill_mask has rows asked, not all"),
    ({"task": "tag", "rows": "all", "steps": (Mean(), HeadLinear("a", 2))}, "reads each token by itself"),
    ({"task": "fill_mask", "rows": "asked", "steps": (HeadNorm("n", 0.1),)}, "a head of fill_mask needs a step linear"),
    ({"steps": (Scatter(2),)}, "ends in the step scatter, and no other head has it"),
])
def test_an_impossible_head_is_refused(head, message):
    usual = {"task": "classify", "rows": "first", "steps": (HeadLinear("a", 2),), "labels": ("x", "y")}
    with pytest.raises(WeightsError, match=message):
        HeadConfig(**usual | head)


def test_a_head_comes_back_from_json():
    steps = Mean(), HeadNorm("n", 1e-5, bias=False), HeadLinear("a", 2, tied=False)
    head = HeadConfig("classify", "all", steps, ("x", "y"), "none", "tanh", "sum", "log1p_relu", 9, 1, 2, 3, 4)
    assert HeadConfig.from_json(json.loads(json.dumps(head.to_json()))) == head
    for wrong in ([], {}, head.to_json() | {"steps": [{"step": "fly"}]}, head.to_json() | {"steps": 1},
                  head.to_json() | {"more": 1}):
        with pytest.raises(WeightsError):
            HeadConfig.from_json(wrong)


def test_heads_of_a_model_in_memory_are_checked():
    encoder = random_model()
    config = HeadConfig("classify", "first", (HeadLinear("a", 2),), ("x", "y"))
    weights = {"a.weight": np.ones((2, 12), np.float32), "a.bias": np.zeros(2, np.float32)}
    assert list(Engine(Model(encoder=replace(encoder, heads=(Head(config, weights),)))).heads) == ["classify"]
    tied = replace(config, steps=(HeadLinear("a", 2, tied=True),))
    for heads, message in (([], "heads must be a tuple"), ((Head(config, weights),) * 2, "two heads have one task"),
                           ((Head(config, {}),), "missing a.weight"), ((Head(tied, weights),), "tied to the word"),
                           ((Head(config, weights | {"b": 1}),), "unexpected b")):
        with pytest.raises(WeightsError, match=message):
            Engine(Model(encoder=replace(encoder, heads=heads)))


# Wrong calls


@pytest.mark.parametrize(("name", "call", "message"), [
    ("bert_classify", lambda m: m.classify(7), "texts must be a string .* not int 7"),
    ("bert_classify", lambda m: m.classify("a", top_k=0), "top_k must be"),
    ("bert_classify", lambda m: m.classify("a", function_to_apply="exp"), "function_to_apply must be one of 'softmax'"),
    ("bert_classify", lambda m: m.classify("\ud800"), "not valid Unicode"),
    ("bert_classify", lambda m: m.classify(["a" * 300_000]), "has too few tokens in its first"),
    ("bert_classify", lambda m: m.classify("a", max_length=9), "classify has no argument max_length"),
    ("bert_classify", lambda m: m.predict(["a"]), "pairs must be pairs"),
    ("bert_classify", lambda m: m.predict([("a", "b")], activation_fn=abs), "activation_fn must be one of 'identity'"),
    ("bert_pairs", lambda m: m.rank("a", "b"), "documents must be a list"),
    ("bert_pairs", lambda m: m.rank(1, ["b"]), "query must be a text"),
    ("bert_pairs", lambda m: m.rank("a", [None]), "document 0 must be a string, not NoneType"),
    ("bert_tag", lambda m: m.tag({"a", "b"}, is_split_into_words=True), "not set, whose order"),
    ("bert_answer", lambda m: m.answer(["a"], [None]), "context 0 must be a string"),
    ("bert_answer", lambda m: m.answer(None, "b"), "question must be a string or a list"),
    ("bert_tag", lambda m: m.tag([("a", "b")]), "text 0 must be a string, not tuple"),
    ("bert_tag", lambda m: m.tag("a", aggregation_strategy="last"), "aggregation_strategy must be one of"),
    ("bert_tag", lambda m: m.tag("a", stride=4), 'aggregation_strategy="simple"'),
    ("bert_tag", lambda m: m.tag("a", words="letters"), "words must be one of"),
    ("bert_tag", lambda m: m.tag("a b", is_split_into_words=True), "must be lists of words"),
    ("bert_tag", lambda m: m.tag([["a"], "b"], is_split_into_words=True), "each text must be a list of words"),
    ("bert_tag", lambda m: m.tag(texts.LONG, aggregation_strategy="first", stride=95), "leaves 94 for a text of"),
    ("bert_tag", lambda m: m.tag("a", ignore_labels="O"), "ignore_labels must be a list"),
    ("bert_answer", lambda m: m.answer(["a"], ["b", "c"]), "1 questions and 2 texts"),
    ("bert_answer", lambda m: m.answer(texts.sentence(5, 200), texts.LONG), "window of 96 tokens has 3 special tokens"),
    ("bert_answer", lambda m: m.answer("a", "b", max_seq_len=0), "max_seq_len must be"),
    ("bert_fill_mask", lambda m: m.fill_mask("no mask"), r"text 0, 'no mask', has no \[MASK\] among the 96 tokens"),
    ("bert_fill_mask", lambda m: m.fill_mask(["[MASK]", texts.LONG + " [MASK]"]), "text 1, .*has no"),
    ("bert_fill_mask", lambda m: m.fill_mask("[MASK]", targets=[]), "targets must be one text or more"),
    ("bert_fill_mask", lambda m: m.fill_mask("[MASK]", targets=[""]), "has no tokens"),
    ("bert_fill_mask", lambda m: m.fill_mask("[MASK]", top_k=0), "top_k must be"),
])
def test_wrong_calls_are_refused(name, call, message):
    with pytest.raises(InputError, match=message):
        call(load(name))


def test_empty_inputs():
    assert load("bert_classify").classify([]) == []
    assert load("bert_pairs").predict([]).shape == (0,)
    assert load("bert_pairs").rank("a", []) == []
    assert load("bert_tag").tag(["", " "], aggregation_strategy="simple") == [[], []]
    assert load("bert_answer").answer([], []) == []
    assert load("bert_answer").answer("Who?", "") == {"score": 0.0, "start": 0, "end": 0, "answer": ""}
    assert load("bert_fill_mask").fill_mask([]) == []


def test_generators_and_arrays_are_read_once_in_order():
    model, some = load("bert_classify"), texts.TEXTS[:4]
    expected = model.classify(some)
    assert model.classify(text for text in some) == expected
    assert model.classify(np.array(some)) == expected
    assert {type(one["text"]) for one in load("bert_pairs").rank("a", np.array(some), return_documents=True)} == {str}
    pairs = load("bert_pairs").predict(texts.PAIRS[:4])
    for given in (np.array(texts.PAIRS[:4]), np.array(texts.PAIRS[:4], object), iter(texts.PAIRS[:4])):
        assert np.array_equal(load("bert_pairs").predict(given), pairs)
    with pytest.raises(InputError, match="pass one of its columns"):
        model.classify({"text": some})


def test_a_call_stops_in_time():
    with pytest.raises(TimedOut):
        load("bert_tag").tag([texts.LONG] * 50, aggregation_strategy="first", stride=8, timeout=1e-4)


@pytest.mark.parametrize(("name", "call"), [
    ("bert_fill_mask", lambda m: m.fill_mask(["[MASK] " * 90], top_k=15, timeout=0.5)),
    ("bert_tag", lambda m: m.tag(["anna " * 300], aggregation_strategy="first", stride=80, timeout=0.5)),
])
def test_a_call_with_many_results_stops_in_time(name, call, monkeypatch):
    """What is slow here is the text of each result."""
    model = load(name)
    for part in ("join", "decode"):
        monkeypatch.setattr(Tokenizer, part, lambda *given, **options: time.sleep(0.002) or "")
    start = time.monotonic()
    with pytest.raises(TimedOut):
        call(model)
    assert time.monotonic() - start < 2.5


def test_ranking_answers_stops_in_time():
    places = Places(np.zeros(1, np.int32), np.zeros(1, np.int32), ["a"], [(0, 1)], [False], [0], [1])
    with pytest.raises(TimedOut):
        best_answers(None, "a", [places], [np.zeros((1, 2), np.float32)], Answering(), Stop(time.monotonic() - 1))


def test_a_text_without_a_mask_token_is_explained(tmp_path):
    folder = changed(tmp_path / "folder", "bert_fill_mask", mask_token="[NONE]")
    with pytest.raises(UnsupportedError, match="the model's tokenizer has no mask"):
        Engine.load(folder).fill_mask("[MASK]")


def test_several_masks_give_a_list_each():
    found = load("bert_fill_mask").fill_mask(["[MASK]", "[MASK] [MASK]"], top_k=2)
    assert [len(found[0]), len(found[1]), len(found[1][0])] == [2, 2, 2]
    assert "[MASK]" in found[1][0][0]["sequence"]
    with pytest.warns(UserWarning, match="is no token of the vocabulary"):
        load("bert_fill_mask").fill_mask("[MASK]", targets="annaannaanna")
    with pytest.warns(UserWarning, match=r"'zzzz' is no token of the vocabulary; '\[UNK\]' stands for it"):
        load("bert_fill_mask").fill_mask("[MASK]", targets="zzzz")


def test_words_of_the_tokenizer(tmp_path):
    """A tokenizer whose tokens hold the space before a word: the pipeline's rule takes "(" and "l" for words."""
    model = Engine.load(changed(tmp_path / "folder", "deberta_tag", {"id2label": {str(i): f"B-{i}" for i in range(6)}}))
    text = "(Anna) lives, in Berlin-Oslo"
    found = [[text[one["start"] : one["end"]].strip() for one in
              model.tag(text, aggregation_strategy="first", words=words)] for words in ("tokenizer", "spaces")]
    assert found[0] == text.split()
    assert len(found[1]) > len(found[0])


@pytest.mark.parametrize("token", ["[CLS]", "[SEP]"])
def test_a_special_token_of_several_ids(tmp_path, token):
    """The names of the other tokens stay beside their places."""
    folder = changed(tmp_path / "folder", "bert_tag")
    path = folder / "tokenizer.json"
    document = json.loads(path.read_text(encoding="utf-8"))
    first, last = ({"SpecialToken": {"id": name, "type_id": 0}} for name in ("[CLS]", "[SEP]"))
    one, two = ({"Sequence": {"id": name, "type_id": i}} for i, name in enumerate("AB"))
    numbers = document["model"]["vocab"]
    document["post_processor"] = {
        "type": "TemplateProcessing", "single": [first, one, last], "pair": [first, one, last, two, last],
        "special_tokens": {name: {"id": name, "ids": [numbers[name]] * (1 + (name == token)), "tokens": [name]}
                           for name in ("[CLS]", "[SEP]")}}
    write_json(path, document)
    text = "Anna lives in Berlin."
    found = Engine.load(folder).tag(text, ignore_labels=[])
    assert [one["word"] for one in found] == ["anna", "lives", "in", "berlin", "."]
    assert [text[one["start"] : one["end"]].lower() for one in found] == [one["word"] for one in found]


def test_offsets_count_characters_of_the_callers_text():
    text = "😀 Anna 🏠 Berlin"
    for name in names_of("tag"):
        for entity in load(name).tag(text, aggregation_strategy="simple"):
            assert 0 <= entity["start"] <= entity["end"] <= len(text)


def test_ranks_are_ordered_by_logits_and_ties_by_place(tmp_path):
    """Scores of 1.0 tie; the logits behind them do not."""
    folder = changed(tmp_path / "folder", "bert_pairs", tensors={"classifier.bias": np.full(1, 60, np.float32)})
    model, documents = Engine.load(folder), [second for _, second in texts.PAIRS]
    found = model.rank("Who lives in Berlin?", [*documents, documents[1]])
    assert {one["score"] for one in found} == {1.0}
    logits = model.predict([("Who lives in Berlin?", text) for text in [*documents, documents[1]]], logits=True)
    assert [one["corpus_id"] for one in found] == sorted(range(len(logits)), key=lambda i: (-logits[i], i))


# Reranker and engine.load


def test_a_reranker_takes_a_cross_encoder(tmp_path):
    model = Reranker.load(folder_of("bert_pairs"), threads=1)
    documents = [second for _, second in texts.PAIRS]
    pairs = [("Who?", text) for text in documents]
    assert model.predict(pairs).tolist() == load("bert_pairs").predict(pairs).tolist()
    assert model.rank("Who?", documents) == load("bert_pairs").rank("Who?", documents)
    assert model.rank("Who?", documents, top_k=1, return_documents=True, logits=True)[0].keys() == {
        "corpus_id", "score", "text"}
    assert isinstance(model.predict(pairs[0]), float)
    assert model.tokenizer.encode("anna") == load("bert_pairs").tokenizer.encode("anna")
    assert pickle.loads(pickle.dumps(model)).predict(pairs[:2]).tolist() == model.predict(pairs[:2]).tolist()
    assert "BertForSequenceClassification" not in repr(model)
    save(load_model(folder_of("bert_pairs")), tmp_path / "model.npz")
    assert Reranker.load(tmp_path / "model.npz", threads=1).predict(pairs).tolist() == model.predict(pairs).tolist()
    short = Reranker.load(folder_of("bert_pairs"), threads=1, max_length=12)
    assert short.max_length == 12
    assert short.predict(pairs[7]) != model.predict(pairs[7])
    for name, value in {"instruction": "x", "template": "{query}{document}", "answers": ("a", "b"), "max_rows": 8,
                        "keep_tokens": 0}.items():
        with pytest.raises(InputError, match=f"a cross-encoder reads .* as they are, and has no {name}"):
            Reranker.load(folder_of("bert_pairs"), **{name: value})
    with pytest.raises(InputError, match="reads no instruction"):
        model.predict(pairs, instruction="x")
    with pytest.raises(UnsupportedError, match=r"3 labels; Engine\.predict gives the scores of all"):
        Reranker.load(folder_of("bert_pairs_three"))
    with pytest.raises(UnsupportedError, match=r"cannot rank; load it with Engine. It has heads: tag \(6 labels\)"):
        Reranker.load(folder_of("bert_tag"))


def test_load_finds_the_class():
    assert type(engine.load(folder_of("bert_pairs"))) is Engine
    assert type(engine.load(folder_of("qwen3_classify"))) is Engine
    assert type(engine.load(folder_of("bert_pairs"), kind="rank")) is Reranker


def test_a_folder_of_a_cross_encoder_of_sentence_transformers_6(tmp_path):
    folder = write_folder(tmp_path / "folder", "bert_pairs")
    write_modules_json(folder, ("", TYPES["Transformer"]))
    st = {"model_type": "CrossEncoder", "activation_fn": "torch.nn.modules.linear.Identity",
          "prompts": {"query": "Who "}, "default_prompt_name": None}
    settings = {"transformer_task": "sequence-classification", "module_output_name": "scores",
                "modality_config": {"text": {"method": "forward", "method_output_name": "logits"}}}
    write_json(folder / "config_sentence_transformers.json", st)
    write_json(folder / "sentence_bert_config.json", settings)
    model, plain = Engine.load(folder, threads=1), load("bert_pairs")
    assert model.heads["classify"].pair_function == "identity"
    assert model.predict(texts.PAIRS).tolist() == plain.predict(texts.PAIRS, logits=True).tolist()
    assert model.predict(("lives", "Anna"), prompt_name="query") == plain.predict(("Who lives", "Anna"), logits=True)
    write_json(folder / "config_sentence_transformers.json", st | {"activation_fn": "own.Code"})
    with pytest.raises(UnsupportedError, match="no code of a folder is run"):
        Engine.load(folder)
    write_json(folder / "config_sentence_transformers.json", st)
    write_json(folder / "sentence_bert_config.json", settings | {"transformer_task": "fill-mask"})
    with pytest.raises(UnsupportedError, match="transformer_task = 'fill-mask' is not supported"):
        Engine.load(folder)


# Parts


def test_rows_are_gathered_and_pooled():
    vectors = np.arange(12, dtype=np.float32).reshape(6, 2)
    ends = np.array([0, 3, 3, 6], np.int32)
    rows, cuts = gather(vectors, ends, "first", [None] * 3)
    assert rows.tolist() == [[0, 1], [6, 7]]
    assert cuts.tolist() == [0, 1, 1, 2]
    assert gather(vectors, ends, "last", [None] * 3)[0].tolist() == [[4, 5], [10, 11]]
    rows, cuts = gather(vectors, ends, "asked", [np.array([0, 2]), np.array([], int), np.array([1])])
    assert rows.tolist() == [[0, 1], [4, 5], [8, 9]]
    assert cuts.tolist() == [0, 2, 2, 3]
    rows, cuts = mean(*gather(vectors, ends, "all", [None] * 3))
    assert rows.tolist() == [[2, 3], [8, 9]]
    assert cuts.tolist() == [0, 1, 1, 2]


@pytest.mark.parametrize(("name", "mask"), [("bert_tag", "[MASK]"), ("roberta_tag", "<mask>")])
def test_the_word_of_a_typed_mask_is_the_token(tmp_path, name, mask):
    """The token takes the space in front of it, and the pipeline shows the token."""
    path = write_folder(tmp_path / "model", name)
    document = json.loads((path / "tokenizer.json").read_text(encoding="utf-8"))
    known = {token["content"]: token for token in document["added_tokens"]}
    known[mask]["lstrip"] = True
    write_json(path / "tokenizer.json", document)
    found = Engine.load(path, backend="reference", threads=1).tag(f"a {mask} b", aggregation_strategy="none",
                                                                          ignore_labels=[])
    assert [entity["word"] for entity in found if "mask" in entity["word"].lower()] == [mask]


def test_answers_of_qwen3_as_transformers_saves_them(tmp_path):
    """Its class for answers calls the model transformer."""
    rng = np.random.default_rng(1)
    answers = {"qa_outputs.weight": rng.standard_normal((2, 24), np.float32),
               "qa_outputs.bias": rng.standard_normal(2, np.float32)}
    found = []
    for prefix in ("model.", "transformer."):
        folder = changed(tmp_path / prefix, "qwen3_tag", {"architectures": ["Qwen3ForQuestionAnswering"]}, answers,
                         ("score.weight", "score.bias"), lambda name, prefix=prefix: name.replace("model.", prefix, 1))
        loaded = Engine.load(folder, backend="reference", threads=1)
        found.append(loaded.answer("who?", "Anna lives in Berlin."))
    assert found[0] == found[1]


@pytest.mark.parametrize(("gate", "act"), [("geglu", "gelu"), ("reglu", "gelu"), ("reglu", "relu")])
def test_jina_berts_head_of_words_has_the_activation_of_the_config(gate, act):
    values = {"architectures": ["JinaBertForMaskedLM"], "position_embedding_type": "alibi", "feed_forward_type": gate,
              "hidden_act": act, "vocab_size": 9, "hidden_size": 4, "num_attention_heads": 1, "intermediate_size": 8,
              "num_hidden_layers": 1, "tie_word_embeddings": True, "pad_token_id": 0}
    names = {"dense": "cls.predictions.transform.dense", "norm": "cls.predictions.transform.LayerNorm"}
    tensors = {f"{names['dense']}.weight": np.ones((4, 4), np.float32),
               f"{names['dense']}.bias": np.ones(4, np.float32),
               f"{names['norm']}.weight": np.ones(4, np.float32), f"{names['norm']}.bias": np.ones(4, np.float32),
               "cls.predictions.bias": np.ones(9, np.float32)}
    [head] = read_heads(jina_bert.NAMES.heads, values, jina_bert.read_config(values), tensors)
    assert head.config.steps[0].activation == act


@pytest.mark.parametrize(("ids", "place"), [
    ([1, 2, 3], 2), ([1, 2, 9], 1), ([1, 9, 2, 9, 9], 2), ([9, 9], 0), ([], None)])
def test_the_last_token_that_is_another_one(ids, place):
    assert last_other(np.array(ids, np.int32), 9).tolist() == ([] if place is None else [place])


def test_a_classifier_passes_over_the_pad_token_at_the_end(tmp_path):
    """As transformers' GenericForSequenceClassification; a token sees no later one, so that they could be left out."""
    path = tmp_path / "model"
    shutil.copytree(folder_of("qwen3_classify"), path)
    values = json.loads((path / "config.json").read_text())
    sequences = [[2, 267, 70, 5, 3], [2, 3, 267, 3, 3], [3, 3], [2, 70], []]
    shorter = [[2, 267, 70, 5], [2, 3, 267], [3], [2, 70], []]

    def logits(pad, ids):
        write_json(path / "config.json", values | {"pad_token_id": pad})
        loaded = Engine.load(path, backend="reference", threads=1)
        save(load_model(path), tmp_path / "model.npz")
        again = Engine.load(tmp_path / "model.npz", backend="reference", threads=1)
        rows = [np.array(own, np.int64) for own in ids]
        tokens = Tokens(rows, [np.zeros_like(own) for own in rows])
        found, same = ({i: row for numbers, some in head_logits(one.runner_of("classify")).rows(tokens)
                        for i, row in zip(numbers, some, strict=True)} for one in (loaded, again))
        assert all(found[i].tobytes() == same[i].tobytes() for i in found)
        return found

    expected = logits(None, shorter)
    for pad, ids in ((3, sequences), (3, shorter[:2]), (None, shorter)):
        found = logits(pad, ids)
        assert found.keys() == {i for i, own in enumerate(ids) if own}
        assert max(np.abs(found[i] - expected[i]).max() for i in found) < 1e-6
    assert np.abs(logits(None, sequences)[0] - expected[0]).max() > 1e-3


def test_the_logistic_function_does_not_overflow():
    assert sigmoid(np.array([-1e4, 0, 1e4], np.float32)).tolist() == [0, 0.5, 1]
