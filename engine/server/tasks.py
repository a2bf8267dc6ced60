"""What a model serves: each task turns a request into tokens, names what computes them, and makes the result of them.

The steps are those of the library's own methods, so that a task has their results. Sequences of many requests with one
`Job` are computed together.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from ..base.arguments import flag, is_one_of, positive_int_or_none, refuse_unknown
from ..base.errors import InputError, TextTooLong, UnsupportedError, shown
from ..base.stop import Stop
from ..encoding.call import Call
from ..encoding.text_encoder import ROLE_PROMPTS, TextEncoder, role_prompt
from ..heads.classify import check_function, labels_of
from ..heads.coverage import ranks_of
from ..heads.late import head_vectors, late_tokens, late_vectors
from ..heads.pairs import check_pairs, check_query, check_ranks, scores_of
from ..heads.runner import HeadRunner
from ..heads.sparse import NOTHING, sparse_rows, sparse_vectors
from ..heads.tokens import check_tagging, entities_of, tag_windows
from ..interface.engine import Engine
from ..interface.reranker import Reranker
from ..model.generation_config import ids_array
from ..text.cuts import marking
from ..text.sentences import Sentence, add_prompt, check_sentences, check_texts, choose_prompt, slices
from ..text.tokenizer import Tokens, tokens_of

Piece: TypeAlias = "tuple[Work, Sequence[int]]"
"""A request, and the numbers of its sequences that a batch computes."""


@dataclass(frozen=True, eq=False)
class Job:
    """What computes sequences, of many requests together: the second of the three steps of a task."""

    name: str
    compute: Callable[[Sequence[Piece], Stop], Iterator[tuple[int, Any]]]
    """Yields (number of a sequence among those of all pieces, its result); nothing for a sequence without a result."""


@dataclass(frozen=True, eq=False)
class Work:
    """A request that has been tokenized: the first of the three steps of a task."""

    kind: Hashable
    """What the request asks for beside its inputs: its task and its options."""
    job: Job
    tokens: Tokens
    finish: Callable[[list[Any]], Any]
    """Returns the value of the answer, by the result of each sequence; None stands for none. It is the third step."""
    truncated: list[bool]
    """Whether each input was cut."""
    result_bytes: int
    """About how much memory the results of all sequences take: 4 bytes for each float32."""
    counts: list[int] = field(default_factory=list)
    """The tokens of each input; by default `lengths`, as an input is one sequence in all tasks but tag."""
    lengths: list[int] = field(init=False)
    """The tokens of each sequence."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "lengths", [len(ids) for ids in self.tokens.input_ids])
        object.__setattr__(self, "counts", self.counts or self.lengths)

    @property
    def bytes(self) -> int:
        """About how much memory the tokens and the results take."""
        ids_and_types = (4 + 4) * sum(self.lengths)     # int32
        return _SEQUENCE * len(self.lengths) + ids_and_types + self.result_bytes


_SEQUENCE = 800
"""About how many bytes Python takes for a sequence beside its tokens and results: three arrays, and places in lists."""
_WORDS = 1024
"""How many words of a sparse vector its memory is counted for; few texts have more."""
Task: TypeAlias = Callable[[Any, Mapping[str, Any], Stop], Work]
"""Tokenizes a request. Raises `InputError` for wrong inputs and options, and what the `Stop` says."""


def tasks_of(model: Engine | Reranker) -> dict[str, Task]:
    """Return the tasks of a model by their names; raises `UnsupportedError` for a model that serves none."""
    tasks = _of_reranker(model) if isinstance(model, Reranker) else _of_engine(model)
    if not tasks:
        raise UnsupportedError("this model reads no texts, or has no vectors and no head for them, so there is nothing "
                               "to serve; Engine.forward computes what it has")
    return tasks


def _of_engine(engine: Engine) -> dict[str, Task]:
    if engine.text is None:
        return {}
    jobs, heads = _Jobs(), engine.heads
    sparse = heads.get("encode_sparse")     # one that reads_numbers gets a number for each token, and no vectors
    tasks: dict[str, Task] = {}
    if engine.text.late is None and (sparse is None or not sparse.reads_numbers):
        tasks |= {"embed": partial(_embed, engine, jobs), "tokens": partial(_tokens, engine, jobs)}
    if sparse is not None or "fill_mask" in heads:
        tasks["sparse"] = partial(_sparse, engine, jobs)
    if "encode_tokens" in heads:
        tasks["late"] = partial(_late, engine, jobs)
    if "classify" in heads:
        tasks |= {"classify": partial(_classify, engine, jobs), "score": partial(_score, engine, jobs)}
        if heads["classify"].outputs == 1:
            tasks["rank"] = partial(_rank, engine, jobs)
    if "tag" in heads:
        tasks["tag"] = partial(_tag, engine, jobs)
    return tasks


def _of_reranker(model: Reranker) -> dict[str, Task]:
    if model.cross_encoder is None:
        return {"score": partial(_score_by_prompts, model), "rank": partial(_rank_by_prompts, model)}
    jobs = _Jobs()
    return {"score": partial(_score_by_reranker, model, model.cross_encoder, jobs),
            "rank": partial(_rank_by_reranker, model, model.cross_encoder, jobs)}


class _Jobs:
    """The jobs of a model, one for each head and for each encoder of a model with routes."""

    def __init__(self) -> None:
        self._made: dict[tuple[str, int], Job] = {}

    def pooled(self, encoder: TextEncoder) -> Job:
        """Return what computes the pooled vector of each sequence."""
        return self._one("pooled", encoder,
                         lambda pieces, stop: _numbered(encoder.pooled(gathered(pieces), Call(stop=stop))))

    def vectors(self, encoder: TextEncoder) -> Job:
        """Return what computes the vectors [T,D] of the tokens of each sequence."""
        return self._one("vectors", encoder,
                         lambda pieces, stop: _numbered(encoder.token_vectors(gathered(pieces), Call(stop=stop))))

    def logits(self, runner: HeadRunner) -> Job:
        return self._one("logits", runner, lambda pieces, stop: runner.logits(gathered(pieces), Call(stop=stop)))

    def words(self, runner: HeadRunner) -> Job:
        return self._one("words", runner, lambda pieces, stop: sparse_rows(runner, gathered(pieces), Call(stop=stop)))

    def _one(self, name: str, owner: object, compute: Callable[[Sequence[Piece], Stop], Iterator[tuple[int, Any]]]
             ) -> Job:
        """Return the job of an encoder or a head, always the same one. The model keeps both, so an id is unique."""
        return self._made.setdefault((name, id(owner)), Job(name, compute))


def _numbered(batches: Iterable[tuple[list[int], Iterable[Any]]]) -> Iterator[tuple[int, Any]]:
    """Yield the number of each sequence and its result, of batches (numbers, results)."""
    for numbers, results in batches:
        yield from zip(numbers, results, strict=True)


def gathered(pieces: Iterable[Piece]) -> Tokens:
    """Return the tokens of some requests, one request after the other; skips and reads if one of them has them."""
    pieces = list(pieces)
    ids = [work.tokens.input_ids[i] for work, places in pieces for i in places]
    types = [work.tokens.token_type_ids[i] for work, places in pieces for i in places]
    skips = reads = None
    if any(work.tokens.skips is not None for work, _ in pieces):
        skips = [0 if work.tokens.skips is None else work.tokens.skips[i] for work, places in pieces for i in places]
    if any(work.tokens.reads is not None for work, _ in pieces):
        reads = [work.lengths[i] if work.tokens.reads is None else work.tokens.reads[i]
                 for work, places in pieces for i in places]
    return Tokens(ids, types, skips, reads)


# Each task reads its options by the names of the library's method.


def _options(task: str, given: Mapping[str, Any], **known: Any) -> dict[str, Any]:
    """Return the options of a task; known: their defaults. Raises `InputError` for another option."""
    refuse_unknown(task, given, known)
    return {**known, **given}


_PROMPT: dict[str, Any] = {"prompt": None, "prompt_name": None}
_CUT: dict[str, Any] = {"truncation": True}
"""The options of several tasks, with their defaults."""


def _reader(engine: Engine, options: Mapping[str, Any]) -> tuple[Engine, str]:
    """Return the encoder of a request, and the prompt in front of its texts, as `Engine.encode_query` chooses them.

    options: prompt, prompt_name, and role, which is "query", "document" or None.
    """
    role, prompt, name = options["role"], options["prompt"], options["prompt_name"]
    if role is not None and not is_one_of(role, ROLE_PROMPTS):
        raise InputError(f'role must be "query", "document" or None, not {shown(role)}')
    reader = engine.engine_of(role if engine.routes else None)
    if role is not None and prompt is None and name is None and engine.text is not None:
        return reader, role_prompt(engine.text, ROLE_PROMPTS[role])
    return reader, _prompt(reader, prompt, name)


def _prompt(engine: Engine, prompt: Any = None, name: Any = None) -> str:
    if engine.text is None:
        raise UnsupportedError("this model came without a tokenizer, so it has no prompts")
    return choose_prompt(engine.text, prompt, name)


def _cut_tokens(texts: Sequence[Any], tokenize: Callable[[Sequence[Any]], Tokens], truncation: Any, prompt: str = ""
                ) -> tuple[Tokens, list[bool]]:
    """Return the tokens of texts, a slice at a time, and whether each was cut; raises `TextTooLong`.

    prompt: what `tokenize` puts in front of each text.
    """
    with marking(flag("truncation", truncation)) as marks:
        parts = [tokenize(texts[part.start : part.stop]) for part in slices(add_prompt(prompt, texts))]
    if len(parts) == 1:
        return parts[0], marks
    ids = [each for part in parts for each in part.input_ids]
    types = [each for part in parts for each in part.token_type_ids]
    skips = [each for part in parts for each in part.skips or ()]
    reads = [each for part in parts for each in part.reads or ()]
    return Tokens(ids, types, skips or None, reads or None), marks


def _embed(engine: Engine, jobs: _Jobs, inputs: Any, given: Mapping[str, Any], stop: Stop) -> Work:
    options = _options("embed", given, **_PROMPT, **_CUT, role=None, normalize_embeddings=False, truncate_dim=None)
    wanted = positive_int_or_none("truncate_dim", options["truncate_dim"])
    unit = flag("normalize_embeddings", options["normalize_embeddings"])
    reader, tokens, marks = _read(engine, inputs, options, stop)
    encoder = reader.text_encoder

    def finish(rows: list[Any]) -> Any:
        if not rows:
            return reader.encode([], truncate_dim=wanted)
        return encoder.finished(np.stack(rows), wanted, unit)

    width = reader.config.hidden_size * len(reader.text.pooling if reader.text else ())
    return Work(_kind("embed", given), jobs.pooled(encoder), tokens, finish, truncated=marks,
                result_bytes=4 * width * len(tokens.input_ids))


def _tokens(engine: Engine, jobs: _Jobs, inputs: Any, given: Mapping[str, Any], stop: Stop) -> Work:
    options = _options("tokens", given, **_PROMPT, **_CUT, role=None)
    reader, tokens, marks = _read(engine, inputs, options, stop)
    return Work(_kind("tokens", given), jobs.vectors(reader.text_encoder), tokens, finish=list, truncated=marks,
                result_bytes=4 * reader.config.hidden_size * sum(map(len, tokens.input_ids)))


def _read(engine: Engine, inputs: Any, options: Mapping[str, Any], stop: Stop) -> tuple[Engine, Tokens, list[bool]]:
    """Return the encoder of a request, the tokens of its texts or its ids, and whether each was cut."""
    if _are_ids(inputs):
        if options["prompt"] or options["prompt_name"] is not None:
            raise InputError("a prompt is a text, and token ids are read as they are; send texts, or leave prompt and "
                             "prompt_name out")
        reader = engine.engine_of(options["role"] if engine.routes else None)
        return reader, *_checked_ids(reader, inputs, flag("truncation", options["truncation"]))
    reader, prompt = _reader(engine, options)
    encoder = reader.text_encoder
    return reader, *_cut_tokens(_texts(inputs), lambda texts: encoder.tokens(texts, prompt, stop),
                                options["truncation"], prompt)


def _listed(inputs: Any) -> Sequence[Any]:
    """Return inputs that are a list; raises `InputError`, also for a text, whose items are its letters."""
    if not isinstance(inputs, (list, tuple)):
        raise InputError(f"inputs must be a list, not {type(inputs).__name__} {shown(inputs, 60)}")
    return inputs


def _texts(inputs: Any) -> list[Sentence]:
    return check_sentences(_listed(inputs), "inputs")


def _checked_pairs(inputs: Any) -> list[tuple[str, str]]:
    return check_pairs(_listed(inputs))


def _are_ids(inputs: Any) -> bool:
    """Return whether the first input is a list of token ids; an empty one counts."""
    first = inputs[0] if isinstance(inputs, (list, tuple)) and inputs else None
    return isinstance(first, (list, np.ndarray)) and not (len(first) > 0 and isinstance(first[0], str))


def _checked_ids(engine: Engine, inputs: Sequence[Any], truncation: bool) -> tuple[Tokens, list[bool]]:
    """Return lists of token ids as tokens, and whether each was cut; raises `InputError`, and `TextTooLong`."""
    limit, most = engine.text_encoder.tokenizer.limit, engine.config.vocab_size
    rows, marks = [], []
    for i, given in enumerate(inputs):
        ids = ids_array(f"input {i}", given)
        if not len(ids) or ids.max() >= most:
            largest = "none" if not len(ids) else str(ids.max())
            raise InputError(f"input {i} must have token ids from 0 to {most - 1}, at least one, not {largest}")
        if len(ids) > limit and not truncation:
            raise TextTooLong(f"truncation=False, and input {i} has {len(ids):,} tokens, more than the {limit:,} that "
                              "the model reads; shorten it, or leave truncation out", f"{len(ids):,}", limit, i)
        rows.append(ids[:limit].astype(np.int32))
        marks.append(len(ids) > limit)
    return Tokens(rows, [np.zeros(len(ids), np.int32) for ids in rows]), marks


def _sparse(engine: Engine, jobs: _Jobs, inputs: Any, given: Mapping[str, Any], stop: Stop) -> Work:
    options = _options("sparse", given, **_PROMPT, **_CUT, role=None, max_active_dims=None)
    most = positive_int_or_none("max_active_dims", options["max_active_dims"])
    reader, prompt = _reader(engine, options)
    runner = reader.sparse_runner
    most = most or runner.config.max_active_dims
    tokens, marks = _cut_tokens(_texts(inputs),
                                lambda texts: runner.encoder.tokens(texts, prompt, stop), options["truncation"],
                                prompt)

    def finish(rows: list[Any]) -> Any:
        return sparse_vectors(runner, [NOTHING if row is None else row for row in rows], most)

    # About 12 bytes for a word of a sparse vector: its int32 id, its float32 number, and its share of their arrays.
    return Work(_kind("sparse", given), jobs.words(runner), tokens, finish, truncated=marks,
                result_bytes=12 * min(_WORDS, runner.config.outputs) * len(tokens.input_ids))


def _late(engine: Engine, jobs: _Jobs, inputs: Any, given: Mapping[str, Any], stop: Stop) -> Work:
    """Return the work for vectors of tokens, which the encoder gives, or a head of a model without a `LateConfig`."""
    options = _options("late", given, **_PROMPT, **_CUT, role="document", normalize_embeddings=False)
    role, unit = options["role"], flag("normalize_embeddings", options["normalize_embeddings"])
    reader, prompt = _reader(engine, options)
    encoder, late = reader.text_encoder, None if reader.text is None else reader.text.late
    if late is None:
        runner = reader.runner_of("encode_tokens")
        job, width = jobs.logits(runner), runner.config.outputs
    else:
        job, width = jobs.vectors(encoder), reader.config.hidden_size

    def tokenize(texts: Sequence[Any]) -> Tokens:
        prompted = add_prompt(prompt, texts)[:]     # a list
        return encoder.tokens(prompted, stop=stop) if late is None else late_tokens(encoder, late, prompted, role, stop)

    tokens, marks = _cut_tokens(_texts(inputs), tokenize, options["truncation"], prompt)

    def finish(rows: list[Any]) -> list[np.ndarray]:
        rows_of = [np.zeros((0, width), np.float32) if row is None else row for row in rows]
        if late is None:
            return [head_vectors(runner, row, unit) for row in rows_of]
        return [late_vectors(encoder, late, ids, row, role, unit)
                for ids, row in zip(tokens.input_ids, rows_of, strict=True)]

    return Work(_kind("late", given), job, tokens, finish, truncated=marks,
                result_bytes=4 * width * sum(map(len, tokens.input_ids)))


def _classify(engine: Engine, jobs: _Jobs, inputs: Any, given: Mapping[str, Any], stop: Stop) -> Work:
    options = _options("classify", given, **_CUT, top_k=1, function_to_apply=None)
    top_k, function = positive_int_or_none("top_k", options["top_k"]), options["function_to_apply"]
    check_function(function)
    runner = engine.runner_of("classify")
    tokens, marks = _cut_tokens(_texts(inputs),
                                lambda texts: runner.encoder.tokens(texts, stop=stop), options["truncation"])
    return _by_logits(_kind("classify", given), jobs, runner, tokens, marks,
                      lambda logits: labels_of(runner, logits, top_k, function))


def _by_logits(kind: Hashable, jobs: _Jobs, runner: HeadRunner, tokens: Tokens, marks: list[bool],
               finish: Callable[[np.ndarray], Any]) -> Work:
    """Return the work of a head with one row of logits for each text. finish: gets float32 [n, labels]."""
    outputs = runner.config.outputs

    def collect(rows: list[Any]) -> Any:
        logits = np.zeros((len(rows), outputs), np.float32)
        for i, row in enumerate(rows):
            if row is not None:     # a text without tokens has zeros
                logits[i] = row[0]
        return finish(logits)

    return Work(kind, jobs.logits(runner), tokens, collect, truncated=marks,
                result_bytes=4 * outputs * len(tokens.input_ids))


def _pairs(runner: HeadRunner, pairs: Sequence[tuple[str, str]], truncation: Any, stop: Stop
           ) -> tuple[Tokens, list[bool]]:
    """Return the tokens of pairs, and whether each was cut."""
    return _cut_tokens(pairs, lambda some: runner.encoder.tokenizer.pairs(some, stop), truncation)


def _score(engine: Engine, jobs: _Jobs, inputs: Any, given: Mapping[str, Any], stop: Stop) -> Work:
    options = _options("score", given, **_PROMPT, **_CUT, logits=False, activation_fn=None, apply_softmax=False)
    as_logits, apply_softmax = (flag(name, options[name]) for name in ("logits", "apply_softmax"))
    runner, prompt = engine.runner_of("classify"), _prompt(engine, options["prompt"], options["prompt_name"])
    pairs = [(prompt + first, second) for first, second in _checked_pairs(inputs)]
    tokens, marks = _pairs(runner, pairs, options["truncation"], stop)
    return _by_logits(_kind("score", given), jobs, runner, tokens, marks,
                      lambda logits: scores_of(runner, logits, options["activation_fn"], as_logits=as_logits,
                                               apply_softmax=apply_softmax))


def _query(inputs: Any) -> tuple[str, list[str]]:
    """Return the query and the documents of a request; raises `InputError`."""
    if not isinstance(inputs, (tuple, list)) or len(inputs) != 2:
        raise InputError(f"the inputs of rank are a query and a list of documents, not {shown(inputs)}")
    return check_query(*inputs)


def _rank(engine: Engine, jobs: _Jobs, inputs: Any, given: Mapping[str, Any], stop: Stop) -> Work:
    options = _options("rank", given, **_PROMPT, **_CUT, top_k=None, return_documents=False, activation_fn=None)
    runner = engine.runner_of("classify", "rank")
    check_ranks(runner)
    (query, texts), top_k = _query(inputs), positive_int_or_none("top_k", options["top_k"])
    shown_texts = texts if flag("return_documents", options["return_documents"]) else None
    prompt = _prompt(engine, options["prompt"], options["prompt_name"])
    tokens, marks = _pairs(runner, [(prompt + query, text) for text in texts], options["truncation"], stop)
    return _by_logits(_kind("rank", given), jobs, runner, tokens, marks,
                      lambda logits: ranks_of(runner, logits, shown_texts, top_k, limit=None,
                                              function=options["activation_fn"]))


def _tag(engine: Engine, jobs: _Jobs, inputs: Any, given: Mapping[str, Any], stop: Stop) -> Work:
    options = _options("tag", given, **_CUT, aggregation_strategy="none", ignore_labels=("O",), stride=None,
                       words="spaces")
    tagging, stride = check_tagging(options["aggregation_strategy"], options["ignore_labels"], options["stride"],
                                    options["words"])
    runner, texts = engine.runner_of("tag"), check_texts(_listed(inputs), "inputs")
    windows = []
    with marking(flag("truncation", options["truncation"])) as marks:
        for part in slices(texts):
            windows += tag_windows(runner, texts[part.start : part.stop], stride=stride, split=False, stop=stop)

    def finish(rows: list[Any]) -> list[Any]:
        logits = {n: row for n, row in enumerate(rows) if row is not None}
        return list(entities_of(runner, texts, windows, logits, tagging, split=False))

    tokens = tokens_of(windows)
    counts = [sum(len(places.input_ids) for places in of_text) for of_text in windows]
    # A window has the place, the text and the word of each token besides: about 300 bytes.
    return Work(_kind("tag", given), jobs.logits(runner), tokens, finish, truncated=marks or [False] * len(texts),
                result_bytes=(4 * runner.config.outputs + 300) * sum(counts), counts=counts)


def _kind(task: str, given: Mapping[str, Any]) -> Hashable:
    """Return the `Work.kind` of a request: its task and the options that it gave."""
    return task, repr(sorted(given.items()))


# A `Reranker` has its own calibration and, for a cross-encoder, the prompt that `Engine.predict` would choose.


def _reranked(engine: Engine, jobs: _Jobs, kind: Hashable, pairs: Sequence[tuple[str, str]], options: Mapping[str, Any],
              stop: Stop, finish: Callable[[np.ndarray], Any]) -> Work:
    """Return the work of a cross-encoder with one logit for each pair. finish: gets these logits, float32 [n]."""
    runner, prompt = engine.runner_of("classify"), _prompt(engine)
    tokens, marks = _pairs(runner, [(prompt + first, second) for first, second in pairs], options["truncation"], stop)
    return _by_logits(kind, jobs, runner, tokens, marks, lambda logits: finish(logits[:, 0]))


def _score_by_reranker(model: Reranker, engine: Engine, jobs: _Jobs, inputs: Any, given: Mapping[str, Any], stop: Stop
                       ) -> Work:
    options = _options("score", given, **_CUT, logits=False)
    return _reranked(engine, jobs, _kind("score", given), _checked_pairs(inputs), options, stop,
                     _scores(model, options))


def _rank_by_reranker(model: Reranker, engine: Engine, jobs: _Jobs, inputs: Any, given: Mapping[str, Any], stop: Stop
                      ) -> Work:
    options = _options("rank", given, **_CUT, logits=False, top_k=None, return_documents=False)
    query, texts = _query(inputs)
    return _reranked(engine, jobs, _kind("rank", given), [(query, text) for text in texts], options, stop,
                     _ranks(model, texts, options))


def _scores(model: Reranker, options: Mapping[str, Any]) -> Callable[[np.ndarray], Any]:
    """Return the function from logits [n] to the scores of pairs."""
    as_logits = flag("logits", options["logits"])
    return lambda logits: logits if as_logits else model.scores_of(logits)


def _ranks(model: Reranker, texts: list[str], options: Mapping[str, Any]) -> Callable[[np.ndarray], Any]:
    """Return the function from logits [n] to the ranked list of documents."""
    top_k, as_logits = positive_int_or_none("top_k", options["top_k"]), flag("logits", options["logits"])
    shown_texts = texts if flag("return_documents", options["return_documents"]) else None
    return lambda logits: model.ranks_of(logits, shown_texts, top_k, as_logits=as_logits)


def _by_prompts(model: Reranker, kind: Hashable, pairs: list[tuple[str, str]], options: Mapping[str, Any], stop: Stop,
                finish: Callable[[np.ndarray], Any]) -> Work:
    """Return the work of a language model. It has a job of its own, so that the request runs alone."""
    queries = [query for query, _ in pairs]
    with marking(flag("truncation", options["truncation"])) as marks:
        prompts = model.prompts(pairs, options["instruction"], stop)
    firsts: dict[str, int] = {}
    for i, query in enumerate(queries):
        firsts.setdefault(query, i)
    # `Reranker.prompts` makes the prompts one query after the other, and reports whether it cut them in that order.
    order = sorted(range(len(pairs)), key=lambda i: firsts[queries[i]])
    truncated = [mark for _, mark in sorted(zip(order, marks, strict=True))]

    def compute(pieces: Sequence[Piece], stop: Stop) -> Iterator[tuple[int, Any]]:
        [(_, places)] = pieces      # of this request alone
        yield from enumerate(model.prompt_logits([prompts[i] for i in places], [queries[i] for i in places], stop))

    return Work(kind, Job("prompts", compute), Tokens(prompts, []), lambda rows: finish(np.array(rows, np.float32)),
                truncated=truncated, result_bytes=4 * len(prompts))


def _score_by_prompts(model: Reranker, inputs: Any, given: Mapping[str, Any], stop: Stop) -> Work:
    options = _options("score", given, **_CUT, logits=False, instruction=None)
    return _by_prompts(model, _kind("score", given), _checked_pairs(inputs), options, stop, _scores(model, options))


def _rank_by_prompts(model: Reranker, inputs: Any, given: Mapping[str, Any], stop: Stop) -> Work:
    options = _options("rank", given, **_CUT, logits=False, instruction=None, top_k=None, return_documents=False)
    query, texts = _query(inputs)
    return _by_prompts(model, _kind("rank", given), [(query, text) for text in texts], options, stop,
                       _ranks(model, texts, options))
