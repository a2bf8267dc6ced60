"""`Reranker`: the scores of transformers and sentence-transformers, the same bits in any call, and refusals.

tests/golden/make/reranker.py made the folder, and known_rerankers.py those of models with prompts of their own.
"""

import json
import pickle
from dataclasses import replace

import numpy as np
import pytest

from engine import InputError, Reranker, TimedOut, UnsupportedError, WeightsError, load_model, save
from engine.base.errors import TextTooLong
from engine.generation.schedule import Budget
from engine.interface.rerank_prompts import KNOWN

from ..generation.table_stepper import TableStepper
from ..tools.changed_folders import copied
from ..tools.head_models import folder_of
from ..tools.paths import DECODERS
from ..tools.step_queues import last_logits

pytest.importorskip("tokenizers")

GOLDEN = DECODERS / "reranker"
EXPECTED = json.loads((GOLDEN / "expected.json").read_text(encoding="utf-8"))
PAIRS = [tuple(pair) for pair in EXPECTED["pairs"]]
DOCUMENTS = ["Lions roar.", "Cheetahs purr.", "", "Cats purr, too. " * 4, "Lions roar."]


def load(**options):
    return Reranker.load(GOLDEN, **{"backend": "reference"} | options)


def changed(folder, **files):
    """Copy the golden folder, with other JSON files."""
    return copied(folder, GOLDEN, **files)


@pytest.mark.parametrize("case", EXPECTED["scores"], ids=lambda case: f"{case['max_length']} {case['instruction'][:5]}")
@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_scores_of_transformers(backend, case):
    reranker = load(backend=backend, max_length=case["max_length"])
    expected = np.subtract(*np.array(case["logits"]).T)
    found = reranker.predict(PAIRS, instruction=case["instruction"], logits=True)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
    scores = reranker.predict(PAIRS, instruction=case["instruction"])
    assert scores.dtype == np.float32
    np.testing.assert_allclose(scores, 1 / (1 + np.exp(-expected)), rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", ["bge_gemma", "mxbai_qwen2"])
def test_scores_of_models_with_prompts_of_their_own(name):
    expected = json.loads((DECODERS / name / "expected.json").read_text(encoding="utf-8"))
    reranker = Reranker.load(DECODERS / name, template=expected["template"])
    logits = np.array(expected["logits"])
    right = logits[:, 0] - logits[:, 1] if logits.shape[1] == 2 else logits[:, 0]
    found = reranker.predict([tuple(pair) for pair in expected["pairs"]], logits=True)
    np.testing.assert_allclose(found, right, rtol=0, atol=1e-5)
    assert np.ptp(right) > 0.1, "scores that are all alike prove nothing"


def test_a_pair_has_the_same_score_in_any_call():
    reranker = load(backend="auto", threads=2)
    pairs = [(query, text) for query in ("Which cats purr?", "多少?") for text in DOCUMENTS] + PAIRS
    together = reranker.predict(pairs)
    assert reranker.predict(pairs[::-1]).tolist() == together[::-1].tolist()
    for pair, score in zip(pairs, together.tolist(), strict=True):
        assert reranker.predict(pair) == score
    small = load(backend="auto", threads=1, max_batch_tokens=200, max_rows=2)
    assert small.predict(pairs[:5]).tolist() == together[:5].tolist()


def test_rank():
    reranker = load(backend="auto")     # NumPy's matrix products have other bits in other batches on some CPUs
    scores = reranker.predict([("cats", text) for text in DOCUMENTS])
    ranked = reranker.rank("cats", DOCUMENTS)
    assert [result["score"] for result in ranked] == sorted(scores.tolist(), reverse=True)
    assert [scores[result["corpus_id"]] for result in ranked] == [result["score"] for result in ranked]
    same = [result["corpus_id"] for result in ranked if result["corpus_id"] in (0, 4)]
    assert same == [0, 4], "equal scores keep the order of the documents"
    best, = reranker.rank("cats", DOCUMENTS, top_k=1, return_documents=True)
    assert best == ranked[0] | {"text": DOCUMENTS[best["corpus_id"]]}
    assert reranker.rank("cats", []) == []
    with pytest.raises(InputError, match=r"documents must be a list of texts, not 'Lions roar\.'"):
        reranker.rank("cats", "Lions roar.")
    assert reranker.predict([]).shape == (0,)


def test_other_templates_and_answers(tmp_path):
    ids = load().answers
    assert ids == (305, 314)
    reranker = load(answers=["no", "yes"])
    assert reranker.answers == ids[::-1]
    np.testing.assert_allclose(reranker.predict(PAIRS), 1 - load().predict(PAIRS), atol=1e-6)
    one = load(answers=[ids[0]])
    logits = np.array(EXPECTED["scores"][0]["logits"])[:, 0]
    np.testing.assert_allclose(one.predict(PAIRS, logits=True), logits, atol=1e-5)
    short = load(template="{query} {document}")
    assert (short.predict(PAIRS) != load().predict(PAIRS)).all()
    own = load(instruction="Find cats.")
    np.testing.assert_allclose(own.predict(PAIRS), load().predict(PAIRS, instruction="Find cats."), atol=0)
    # The tokens that are scored come from the folder, and from their texts in a folder without the module.
    swapped = changed(tmp_path / "a", **{"1_LogitScore/config": {"true_token_id": 314, "false_token_id": 305}})
    assert Reranker.load(swapped).answers == ids[::-1]
    single = changed(tmp_path / "b", **{"1_LogitScore/config": {"true_token_id": 7, "false_token_id": None}})
    assert Reranker.load(single).answers == (7,)
    (changed(tmp_path / "c") / "modules.json").unlink()
    assert Reranker.load(tmp_path / "c").answers == ids


def test_the_prompt_of_a_known_model(tmp_path):
    """Its pieces are tokenized apart, so that no token reaches over the end of a query or of a document."""
    (changed(tmp_path) / "modules.json").unlink()        # whose LogitScore names other answers
    reranker = Reranker.load(tmp_path, template="mxbai-rerank-v2", backend="reference")
    tokenizer = reranker.tokenizer
    assert reranker.answers == (tokenizer.token_id("1"), tokenizer.token_id("0"))
    query, document = "Which cats\n", "\n\nCheetahs purr. " * 40
    before, *middle = (tokenizer.encode(piece) for piece in (
        KNOWN["mxbai-rerank-v2"].pieces[0], f"query: {query}", "\n", f"document: {document}", "\n"))
    [found] = reranker.prompts([(query, document)])
    whole = np.concatenate([before, *middle])
    np.testing.assert_array_equal(found[: len(whole)], whole)
    end = tokenizer.decode(found[len(whole) :], skip_special_tokens=False)
    assert end.endswith("\nRelevance:<|im_end|>\n<|im_start|>assistant\n")
    short = Reranker.load(tmp_path, template="mxbai-rerank-v2", max_length=len(found) - 30)
    [cut] = short.prompts([(query, document)])
    assert len(cut) == len(found) - 30
    np.testing.assert_array_equal(cut, np.concatenate([found[: len(whole) - len(middle[-1]) - 30],
                                                       found[len(whole) - len(middle[-1]) :]]))
    with pytest.warns(UserWarning, match="1 of 1 text was cut"):
        scores = short.predict([(query, document)])
    assert scores.tolist() == short.predict([("cats", "purr"), (query, document)], truncation=True)[1:].tolist()
    with pytest.raises(TextTooLong, match="truncation=False"):
        short.predict([(query, document)], truncation=False)
    with pytest.raises(InputError, match="fills max_length"):
        short.predict([("Which cats? " * 90, document)])
    one = load(template="bge-reranker-v2-gemma", answers=["yes"])
    assert one.template.answers == ("Yes",)
    assert one.predict(PAIRS).shape == (len(PAIRS),)


def test_an_npz_and_a_pickle(tmp_path):
    save(load_model(GOLDEN, kind="generate"), tmp_path / "m.npz")
    reranker = Reranker.load(tmp_path / "m.npz", backend="reference", instruction="Find cats.")
    again = pickle.loads(pickle.dumps(reranker))
    expected = np.subtract(*np.array(EXPECTED["scores"][2]["logits"]).T)
    for one in (reranker, again):
        np.testing.assert_allclose(one.predict(PAIRS, logits=True), expected, atol=1e-5)


def test_a_stopped_call_leaves_nothing_open():
    reranker = load(backend="cython", max_rows=1, keep_tokens=0)
    with pytest.raises(TimedOut):
        reranker.predict(PAIRS * 50, timeout=1e-6)
    assert reranker._decoder.statistics().cache_tokens == 0
    assert len(reranker._decoder._forest) == 0
    reranker.predict(PAIRS)
    assert reranker._decoder.statistics().cache_tokens == 0


@pytest.mark.parametrize(("options", "words"), [
    ({"template": "{query}"}, "template must be a text"), ({"template": 3}, "template must be a text"),
    ({"template": "{document} {query}"}, "after the others"), ({"template": "{query}{query}{document}"}, "once each"),
    ({"template": "{query}{document}{instruction}"}, "after the others"),
    ({"instruction": None}, "instruction must be a text, not None"), ({"max_length": 0}, "max_length must be"),
    ({"answers": []}, "one or two tokens"), ({"answers": "yes"}, "one or two tokens"),
    ({"answers": ["perhaps"]}, "'perhaps' must be one token"), ({"answers": [432]}, "432 must be one token"),
    ({"answers": [True, 1]}, "True must be one token"),
])  # fmt: skip
def test_bad_arguments(options, words):
    with pytest.raises(InputError, match=words):
        load(**options)


@pytest.mark.parametrize(("pairs", "words"), [
    ("text", "must be pairs of a query and a document, not 'text'"),
    (["text"], "must be pairs of a query and a document, not 'text'"),
    ([("a", "b", "c")], "a pair of strings"), ([("a", None)], "a pair of strings"),
])
def test_bad_pairs(pairs, words):
    with pytest.raises(InputError, match=words):
        load().predict(pairs)


def test_a_wrong_progress_bar():
    with pytest.raises(InputError, match="show_progress_bar must be True or False, not 'yes'"):
        load().predict(PAIRS, show_progress_bar="yes")


def test_no_room_for_the_end_of_the_template():
    with pytest.raises(InputError, match=r"max_length=5 leaves no room beside the .* tokens of the end"):
        load(max_length=5).predict(PAIRS)


@pytest.mark.parametrize(("config", "error", "words"), [
    ({}, WeightsError, "true_token_id and false_token_id must be token ids"),
    ({"true_token_id": "yes"}, WeightsError, "must be token ids"),
    ({"true_token_id": 1, "module_input_name": "x"}, UnsupportedError, "module_input_name 'x'"),
    ({"true_token_id": 10**6}, InputError, "1000000 must be one token of the model"),
])
def test_bad_modules(tmp_path, config, error, words):
    with pytest.raises(error, match=words):
        Reranker.load(changed(tmp_path, **{"1_LogitScore/config": config}))


@pytest.mark.parametrize("path", [None, "../elsewhere", "/etc", "a b"])
def test_bad_places_of_a_module(tmp_path, path):
    entry = {"type": "sentence_transformers.cross_encoder.LogitScore"} | ({} if path is None else {"path": path})
    with pytest.raises(WeightsError, match=r"modules\.json: the path of LogitScore"):
        Reranker.load(changed(tmp_path, modules=[entry]))


def test_models_that_are_no_rerankers(tmp_path):
    for name in ("bart", "llama"):
        with pytest.raises(UnsupportedError, match="a language model with a tokenizer"):
            Reranker.load(DECODERS / name)
    values = json.loads((GOLDEN / "tokenizer.json").read_text(encoding="utf-8"))
    values["post_processor"] = {
        "type": "TemplateProcessing", "single": [{"Sequence": {"id": "A", "type_id": 0}},
                                                 {"SpecialToken": {"id": "<|im_end|>", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
        "special_tokens": {"<|im_end|>": {"id": "<|im_end|>", "ids": [422], "tokens": ["<|im_end|>"]}}}
    with pytest.raises(UnsupportedError, match=r"adds special tokens to each text, here \[422\]"):
        Reranker.load(changed(tmp_path, tokenizer=values))


@pytest.mark.parametrize(("rows", "tokens"), [(64, 4096), (1, 1), (2, 5), (3, 100)])
def test_the_budget_changes_nothing(rows, tokens):
    rng = np.random.default_rng(0)
    starts = [rng.integers(3, 20, n) for n in (32, 0, 7)]
    groups = [[np.concatenate([start, rng.integers(3, 20, n)]) for n in (1, 5, 2, 9)] for start in starts]
    groups += [[starts[0]]]
    stepper = TableStepper()
    found = last_logits(stepper, groups, [4, 9], budget=Budget(rows, tokens))
    stepper.assert_clean()
    alone = [[last_logits(TableStepper(), [[prompt]], [4, 9])[0][0] for prompt in group] for group in groups]
    assert [part.tolist() for part in found] == [np.array(part).tolist() for part in alone]
    for step in stepper.steps:
        if len(step) > 1:
            assert len(step) <= rows
            assert sum(len(row.tokens) for row in step) <= tokens
    # The first group's four prompts share what one of them has read.
    first = [row for step in stepper.steps for row in step if row.request == 7]
    assert [row.scored for row in first].count(0) == len(first) - 4
    assert sum(len(row.tokens) for row in first) == 32 + 1 + 5 + 2 + 9


def test_a_misspelt_argument_of_rank_is_guessed():
    reranker = Reranker.load(folder_of("bert_pairs"), threads=1)
    with pytest.raises(InputError, match=r"rank has no argument instructoin \(did you mean instruction\?\); it has"):
        reranker.rank("q", ["d"], instructoin="x")


def test_a_pair_with_nan_is_named(monkeypatch):
    """The prompts of one query are computed together, so that the order is not that of the pairs."""
    reranker = load()
    hurt = reranker.tokenizer.encode("答")[-1]
    step = reranker._decoder.step

    def damaged(rows, *args):
        scores = step(rows, *args)
        return replace(scores, finite=np.array([hurt not in row.tokens for row in rows]))

    monkeypatch.setattr(reranker._decoder, "step", damaged)
    pairs = [("Which cats purr?", "Lions roar."), ("a b", "Lions roar."), ("Which cats purr?", "答"), ("a b", "c")]
    with pytest.raises(WeightsError, match=r"^pair 2: the model computed logits that are NaN"):
        reranker.predict(pairs)
    with pytest.raises(WeightsError, match=r"^pair 1: the model computed logits that are NaN"):
        reranker.rank("Which cats purr?", ["Lions roar.", "答"])


def test_a_query_that_leaves_no_room_for_documents_is_refused():
    """All documents would be cut to nothing, and have one score."""
    reranker = load(max_length=130)
    with pytest.raises(InputError, match=r"the query 'cats .* fills max_length: with the template it has \d+ tokens, "
                                         "and max_length=130 leaves none for a document; shorten the query"):
        reranker.rank("cats " * 200, ["Lions roar.", ""])
    with pytest.warns(UserWarning, match="cut to"):
        assert len(reranker.rank("Which cats purr?", ["Lions roar. " * 40, ""])) == 2
