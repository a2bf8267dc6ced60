"""Methods as values: their options, what they need, their steps taken apart, and the memory that these count."""

from __future__ import annotations

import random
from functools import cache
from inspect import isgenerator

import numpy as np
import pytest

from engine import Engine, InputError
from engine.base.stop import Stop
from engine.encoding.call import PLAIN, Call
from engine.encoding.text_encoder import TextEncoder
from engine.methods.steps import tokenized
from engine.methods.table import METHODS, STREAMED
from engine.methods.workload import Workload
from engine.text.tokens import merge_tokens

from ..tools import head_texts as texts
from ..tools.bits import same
from ..tools.encoders import engine_of
from ..tools.head_models import folder_of
from ..tools.late_folders import write_late
from ..tools.tiny_models import random_model
from ..tools.tiny_text import tiny_text
from ..tools.zero_shot import nli_folder

pytest.importorskip("tokenizers")

SOME = [*texts.TEXTS[:20], *texts.TEXTS[37:39]]
PAIRS = [pair for pair in texts.PAIRS if len(pair[0]) < 200]
MASKED = [text.replace("{}", "[MASK]") for text in texts.MASKED]
ASKED = tuple(map(list, zip(*PAIRS, strict=True)))

CASES = {
    "encode": ("dense", "encode", SOME, {}),
    "encode with a prompt": ("dense", "encode", SOME, {"prompt_name": "q", "truncate_dim": 5}),
    "encode tokens": ("dense", "encode", SOME, {"output_value": "token_embeddings"}),
    "encode all": ("dense", "encode", SOME, {"output_value": None, "prompt_name": "q"}),
    "encode_sparse": ("bert_fill_mask", "encode_sparse", SOME, {"max_active_dims": 9}),
    "encode_tokens": ("late", "encode_tokens", SOME, {"task": "query", "normalize_embeddings": True}),
    "classify": ("bert_classify", "classify", SOME, {"top_k": None}),
    "classify with labels": ("nli", "classify", [*SOME, texts.LONG], {"candidate_labels": ["good", "a cat", "it"]}),
    "predict": ("bert_pairs", "predict", PAIRS, {"logits": True, "prompt": "ask : "}),
    "rank": ("bert_pairs", "rank", ("Who lives in Berlin?", SOME), {"return_documents": True}),
    "tag": ("bert_tag", "tag", SOME, {}),
    "tag in windows": ("bert_tag", "tag", SOME, {"aggregation_strategy": "first", "stride": 3}),
    "tag words": ("bert_tag", "tag", [*texts.WORDS], {"is_split_into_words": True}),
    "answer": ("electra_answer", "answer", ASKED, {"top_k": 3, "max_seq_len": 40, "doc_stride": 4}),
    "fill_mask": ("bert_fill_mask", "fill_mask", MASKED, {"top_k": 3}),
}
"""Of each case the model, the method, its inputs and options."""


@cache
def model(name, folder):
    if name == "dense":
        return engine_of(random_model(tiny_text(prompts={"q": "query : "}, include_prompt=False)), threads=1)
    if name == "nli":
        return Engine.load(nli_folder("bert_classify"), threads=1)
    return Engine.load(folder if name == "late" else folder_of(name), threads=1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return the folder of a model with a vector for each token."""
    return write_late(tmp_path_factory.mktemp("methods") / "late", "roberta")


def prepared(name, folder):
    """Return the model, the workload of a case, and what the user's method returns for it."""
    engine, method, inputs, options = model(CASES[name][0], folder), METHODS[CASES[name][1]], *CASES[name][2:]
    checked = method.read_options(options)
    method.needs(engine)
    workload = method.prepare(engine, method.read(inputs, checked)[0], checked)
    args = inputs if method.name in ("rank", "answer") else (inputs,)
    return workload, getattr(engine, method.name)(*args, truncation=True, **options) if method.name != "answer" else (
        engine.answer(*args, **options))


def compute_together(one, other, seed):
    """Compute two calls slice by slice, with sequences of both in each batch, in random order."""
    rng = random.Random(seed)
    waiting = [(workload, workload.slice(places)) for workload in (one, other) for places in workload.parts()]
    sequences = [(place, i) for place, (_, part) in enumerate(waiting) for i in range(len(part.tokens.input_ids))]
    rng.shuffle(sequences)
    for first in range(0, len(sequences), 5):
        some = sequences[first : first + 5]
        tokens = merge_tokens([(waiting[place][1].tokens, [i]) for place, i in some])
        for numbers, rows in one.computation.rows(tokens, Call(batch_size=3)):
            for number, row in zip(numbers, rows, strict=True):
                (workload, part), i = waiting[some[number][0]], some[number][1]
                workload.take(part, [i], row[None] if isinstance(row, np.ndarray) else [row])
    for workload, part in waiting:
        workload.end(part)


@pytest.mark.parametrize("name", CASES)
def test_steps_of_two_calls_together_give_the_bits_of_each(name, folder, monkeypatch):
    monkeypatch.setattr("engine.text.sentences.SLICE_SENTENCES", 4)
    (one, expected), (other, _) = prepared(name, folder), prepared(name, folder)
    jobs = {workload.computation.work(workload.slice(next(workload.parts())).tokens, PLAIN).job
            for workload in (one, other)}
    assert len(jobs) == 1
    assert one.computation.queue is other.computation.queue
    compute_together(one, other, seed=len(name))
    assert same(one.result(), expected)
    assert same(other.result(), expected)


def run(steps):
    """Return what the steps of a call yielded, and its result."""
    yielded = []
    while True:
        try:
            yielded.append(next(steps))
        except StopIteration as end:
            return yielded, end.value


@pytest.mark.parametrize("name", CASES)
def test_a_call_in_steps(name, folder, monkeypatch):
    """Its tokens are made in steps that never claim too much memory, and its result is that of the library."""
    monkeypatch.setattr("engine.methods.steps.STEP_INPUTS", 5)
    monkeypatch.setattr("engine.methods.steps.CHECKED", 7)
    _, expected = prepared(name, folder)
    engine, method, inputs, options = model(CASES[name][0], folder), METHODS[CASES[name][1]], *CASES[name][2:]
    if method.name == "answer":
        inputs = PAIRS
    bytes_by_step, call = run(tokenized(method, engine, inputs, options, truncation=True))
    assert name == "tag in windows" or bytes_by_step == sorted(bytes_by_step)
    assert max(bytes_by_step) <= call.bytes
    assert len(call.cut) == len(call.counts) == len(inputs[1] if method.name == "rank" else inputs)
    assert sum(call.counts) == sum(call.lengths)
    work = call.work("kind")
    assert (work.kind, work.costs) == ("kind", call.lengths)
    result = call.result(engine.queue.submit(work).result())
    assert same(run(result)[1] if isgenerator(result) else result, expected)


def test_windows_are_counted_before_they_are_made(folder):
    engine, method = model("bert_tag", folder), METHODS["tag"]
    options = {"aggregation_strategy": "simple", "stride": 80}
    steps = tokenized(method, engine, [texts.LONG], options, truncation=True)
    least = [next(steps) for _ in range(2)][-1]
    _, call = run(steps)
    assert len(call.lengths) > 50
    assert 0.9 * call.bytes < least <= call.bytes


def test_a_long_text_of_few_tokens_is_counted_before_its_windows_are_made(folder):
    """`tokenizers` takes far more memory than the text while it reads it whole."""
    options = {"aggregation_strategy": "simple", "stride": 0}
    for word, size in (("a" * 1_000_000, 80_000_000), ("\u00e9" * 1_000_000, 160_000_000)):
        steps = tokenized(METHODS["tag"], model("bert_tag", folder), [word], options, truncation=True)
        assert max(next(steps) for _ in range(2)) >= size


def test_texts_of_a_role():
    engine = engine_of(random_model(tiny_text(prompts={"query": "query : "})), threads=1)
    call = run(tokenized(METHODS["encode"], engine, ["the cat"], {"role": "query"}, truncation=True))[1]
    prompted = engine.tokenizer(["query : the cat"]).input_ids[0]
    assert np.array_equal(call.work().data.input_ids[0], prompted)
    with pytest.raises(InputError, match="classify has no argument role"):
        run(tokenized(METHODS["classify"], engine, ["the cat"], {"role": "query"}, truncation=True))


def test_a_call_holds_the_tokens_of_one_slice_at_a_time(folder, monkeypatch):
    monkeypatch.setattr("engine.text.sentences.SLICE_SENTENCES", 3)
    made, ended = [], []
    tokens, end = TextEncoder.tokens, Workload.end
    monkeypatch.setattr(TextEncoder, "tokens", lambda *args: made.append(1) or tokens(*args))
    monkeypatch.setattr(Workload, "end", lambda self, part, stop: ended.append(len(made)) or end(self, part, stop))
    engine = model("dense", folder)
    assert engine.encode(["the cat"] * 12).shape == (12, 12)
    assert ended == [1, 2, 3, 4]


def test_a_stop_ends_a_call_between_two_steps(folder):
    workload, _ = prepared("tag", folder)
    stop = Stop()
    [places] = workload.parts()
    part = workload.slice(places, stop)
    for numbers, rows in workload.computation.rows(part.tokens):
        workload.take(part, numbers, rows)
    stop.cancelled = True
    with pytest.raises(Exception, match="cancelled"):
        workload.end(part, stop)


@pytest.mark.parametrize("name", METHODS)
def test_options_by_their_names(name):
    method = METHODS[name]
    assert method.read_options({}) == method.options()
    with pytest.raises(InputError, match=f"{name} has no argument speed; it has "):
        method.read_options({"speed": 1})


def test_wrong_options_say_which():
    with pytest.raises(InputError, match="top_k must be None or an int of at least 1, not 0"):
        METHODS["classify"].read_options({"top_k": 0})
    with pytest.raises(InputError, match="normalize_embeddings must be True or False"):
        METHODS["encode"].read_options({"normalize_embeddings": "no"})
    assert METHODS["encode"].read_options({"precision": None, "truncate_dim": np.int64(3)}).truncate_dim == 3


def test_what_methods_need(folder):
    serves = {name: set(model(name, folder).methods)
              for name in ("dense", "late", "bert_tag", "bert_classify", "bert_pairs", "bert_fill_mask")}
    assert serves == {"dense": {"encode"}, "late": {"encode_tokens", "tag"}, "bert_tag": {"encode", "tag"},
                      "bert_classify": {"encode", "classify", "predict"},
                      "bert_pairs": {"encode", "classify", "predict", "rank"},
                      "bert_fill_mask": {"encode", "encode_sparse", "fill_mask"}}
    assert repr(METHODS["encode_sparse"]) == "<Method encode_sparse: prompt_name, prompt, max_active_dims>"


def test_streams_have_columns():
    assert list(STREAMED) == ["vectors", "sparse", "tokens", "classes"]
    assert all(method.columns is not None for method in STREAMED.values())
