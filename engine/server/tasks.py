"""What a model serves: each task turns a request into tokens, names what computes them, and makes the result of them.

The steps are those of the library's own methods, so that a task has their results. Sequences of many requests with one
`Job` are computed together.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Mapping, Sequence
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
from ..heads.late import late_tokens, late_vectors
from ..heads.pairs import check_pair, check_ranks, scores_of
from ..heads.runner import HeadRunner
from ..heads.sparse import NOTHING, sparse_rows, sparse_vectors
from ..heads.tokens import check_tagging, entities_of, tag_windows
from ..interface.engine import Engine
from ..interface.reranker import Reranker
from ..model.generation_config import ids_array
from ..text.cuts import Cuts, reporting
from ..text.excerpts import START_CHARACTERS
from ..text.sentences import add_prompt, check_sentence, check_text, choose_prompt, slices
from ..text.tokenizer import Places, Tokens, tokens_of
from ..weights.modules import normalize

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
    cost: Cost
    counts: list[int] = field(default_factory=list)
    """The tokens of each input; by default `lengths`, as an input is one sequence in all tasks but tag."""
    lengths: list[int] = field(init=False)
    """The tokens of each sequence."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "lengths", [len(ids) for ids in self.tokens.input_ids])
        object.__setattr__(self, "counts", self.counts or self.lengths)

    @property
    def bytes(self) -> int:
        """About how much memory the tokens, the results and the answer take."""
        return self.cost.of(len(self.lengths), sum(self.lengths))


@dataclass(frozen=True)
class Cost:
    """About how many bytes the results of a task take, and the answer that is made of them."""

    sequence: int = 0
    """For each sequence."""
    token: int = 0
    """For each token of a sequence."""

    def of(self, sequences: int, tokens: int) -> int:
        """Return about how many bytes a request takes: its tokens, its results and its answer."""
        ids_and_type = 4 + 4     # int32
        return sequences * (_SEQUENCE + self.sequence) + tokens * (ids_and_type + self.token)


_SEQUENCE = 800
"""About how many bytes Python takes for a sequence beside its tokens and results: three arrays, and places in lists."""
_NUMBER = 24
"""A number of a vector: in a row, among all rows, once more where a function makes it another one, and its digits."""
_WORD = 48
"""A word of a sparse vector: its int32 id, its float32 number, their share of arrays, and their digits and names."""
_WORDS = 1024
"""How many words of a sparse vector its memory is counted for; few texts have more."""
_DICTIONARY = 400
"""A dictionary of a label, a rank or a tag, with its values, and its JSON."""
_PLACE = 300
"""A token with its place in a text: what `Places` has of it."""
SLICE_TEXTS, SLICE_CHARACTERS = 128, 2**14
"""The most texts, and characters unless one text has more, that are tokenized in one step: some milliseconds."""
_MOST_TAGGED = 2**19
"""As many tokens of one text need more memory than a request may have, so that no more are counted."""
_CHECKED = 4096
"""The most texts that are checked in one step."""

Preparation: TypeAlias = Generator[int, None, Work]
"""The steps of some milliseconds in which a request becomes tokens. Each step yields about how many bytes the request
takes at least, by what is known then; the first one is yielded before a text is tokenized."""
Task: TypeAlias = Callable[[Any, Mapping[str, Any], Stop], Preparation]
"""Tokenizes a request. Its steps raise `InputError` for wrong inputs and options, and what the `Stop` says."""


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


def _reader(engine: Engine, options: Mapping[str, Any], inputs: Any = None) -> tuple[Engine, str]:
    """Return the encoder of a request, and the prompt in front of its texts, as `Engine.encode_query` chooses them.

    options: prompt, prompt_name, and role, which is "query", "document" or None. inputs: texts, or lists of token ids,
    which have no prompt.
    """
    if _are_ids(inputs):
        if options["prompt"] or options["prompt_name"] is not None:
            raise InputError("a prompt is a text, and token ids are read as they are; send texts, or leave prompt and "
                             "prompt_name out")
        return engine.engine_of(options["role"] if engine.routes else None), ""
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


def _checked(inputs: Any, cost: Cost, check: Callable[[int, Any], Any]) -> Generator[int, None, list[Any]]:
    """Return the inputs, a list, each checked by its number; first yield what that many sequences take."""
    if not isinstance(inputs, (list, tuple)):
        raise InputError(f"inputs must be a list, not {type(inputs).__name__} {shown(inputs, 60)}")
    least = cost.of(len(inputs), len(inputs))       # a text has at least one token
    checked: list[Any] = []
    for first in range(0, len(inputs), _CHECKED):
        yield least
        checked += [check(i, one) for i, one in enumerate(inputs[first : first + _CHECKED], first)]
    return checked


def _input(i: int, given: Any) -> Any:
    return check_sentence(i, given, "inputs")


def _text(i: int, given: Any) -> Any:
    return check_sentence(i, given, "inputs", pairs=False)


def _tokenized(texts: Sequence[Any], tokenize: Callable[[Sequence[Any]], Tokens], truncation: Any, cost: Cost,
               prompt: str = "", least: int = 1) -> Generator[int, None, tuple[Tokens, list[bool]]]:
    """Return the tokens of texts, and whether each was cut, in steps; raises `TextTooLong`.

    prompt: what `tokenize` puts in front of each text. least: the fewest tokens of a sequence.
    """
    marks: list[bool] = []
    cuts = Cuts(flag("truncation", truncation), marks=marks)
    ids: list[np.ndarray] = []
    types: list[np.ndarray] = []
    skips: list[int] = []
    reads: list[int] = []
    tokens = 0
    for part in slices(add_prompt(prompt, texts), SLICE_TEXTS, SLICE_CHARACTERS):
        yield cost.of(len(texts), tokens + least * (len(texts) - part.start))
        with reporting(cuts):
            read = tokenize(texts[part.start : part.stop])
        ids += read.input_ids
        types += read.token_type_ids
        skips += read.skips or ()
        reads += read.reads or ()
        tokens += sum(map(len, read.input_ids))
    return Tokens(ids, types, skips or None, reads or None), marks


def _embed(engine: Engine, jobs: _Jobs, inputs: Any, given: Mapping[str, Any], stop: Stop) -> Preparation:
    options = _options("embed", given, **_PROMPT, **_CUT, role=None, normalize_embeddings=False, truncate_dim=None)
    wanted = positive_int_or_none("truncate_dim", options["truncate_dim"])
    unit = flag("normalize_embeddings", options["normalize_embeddings"])
    reader, prompt = _reader(engine, options, inputs)
    encoder = reader.text_encoder

    def finish(rows: list[Any]) -> Any:
        if not rows:
            return reader.encode([], truncate_dim=wanted)
        return encoder.finished(np.stack(rows), wanted, unit)

    cost = Cost(sequence=_NUMBER * reader.config.hidden_size * len(reader.text.pooling if reader.text else ()))
    tokens, marks = yield from _read(reader, inputs, prompt, options["truncation"], cost, stop)
    return Work(_kind("embed", given), jobs.pooled(encoder), tokens, finish, marks, cost)


def _tokens(engine: Engine, jobs: _Jobs, inputs: Any, given: Mapping[str, Any], stop: Stop) -> Preparation:
    options = _options("tokens", given, **_PROMPT, **_CUT, role=None)
    reader, prompt = _reader(engine, options, inputs)
    cost = Cost(token=_NUMBER * reader.config.hidden_size)
    tokens, marks = yield from _read(reader, inputs, prompt, options["truncation"], cost, stop)
    return Work(_kind("tokens", given), jobs.vectors(reader.text_encoder), tokens, list, marks, cost)


def _read(reader: Engine, inputs: Any, prompt: str, truncation: Any, cost: Cost, stop: Stop
          ) -> Generator[int, None, tuple[Tokens, list[bool]]]:
    """Return the tokens of texts, or lists of ids as they are, and whether each was cut, in steps."""
    if _are_ids(inputs):
        return (yield from _checked_ids(reader, inputs, flag("truncation", truncation), cost))
    encoder, texts = reader.text_encoder, (yield from _checked(inputs, cost, _input))
    return (yield from _tokenized(texts, lambda part: encoder.tokens(part, prompt, stop), truncation, cost, prompt))


def _are_ids(inputs: Any) -> bool:
    """Return whether the first input is a list of token ids; an empty one counts."""
    first = inputs[0] if isinstance(inputs, (list, tuple)) and inputs else None
    return isinstance(first, (list, np.ndarray)) and not (len(first) > 0 and isinstance(first[0], str))


def _checked_ids(engine: Engine, inputs: Sequence[Any], truncation: bool, cost: Cost
                 ) -> Generator[int, None, tuple[Tokens, list[bool]]]:
    """Return lists of token ids as tokens, and whether each was cut; raises `InputError`, and `TextTooLong`."""
    limit, most = engine.text_encoder.tokenizer.limit, engine.config.vocab_size
    rows: list[np.ndarray] = []
    marks: list[bool] = []
    yield cost.of(len(inputs), sum(min(limit, len(ids)) for ids in inputs if isinstance(ids, (list, np.ndarray))))
    for i, given in enumerate(inputs):
        if i % SLICE_TEXTS == 0:
            yield cost.of(len(inputs), sum(map(len, rows)))
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


def _sparse(engine: Engine, jobs: _Jobs, inputs: Any, given: Mapping[str, Any], stop: Stop) -> Preparation:
    options = _options("sparse", given, **_PROMPT, **_CUT, role=None, max_active_dims=None)
    most = positive_int_or_none("max_active_dims", options["max_active_dims"])
    reader, prompt = _reader(engine, options)
    runner = reader.sparse_runner
    most = most or runner.config.max_active_dims
    cost = Cost(sequence=_WORD * min(_WORDS, runner.config.outputs))
    texts = yield from _checked(inputs, cost, _input)
    tokens, marks = yield from _tokenized(texts, lambda part: runner.encoder.tokens(part, prompt, stop),
                                          options["truncation"], cost, prompt)

    def finish(rows: list[Any]) -> Any:
        return sparse_vectors(runner, [NOTHING if row is None else row for row in rows], most)

    return Work(_kind("sparse", given), jobs.words(runner), tokens, finish, marks, cost)


def _late(engine: Engine, jobs: _Jobs, inputs: Any, given: Mapping[str, Any], stop: Stop) -> Preparation:
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

    cost = Cost(token=_NUMBER * width)
    texts = yield from _checked(inputs, cost, _input)
    tokens, marks = yield from _tokenized(texts, tokenize, options["truncation"], cost, prompt)

    def finish(rows: list[Any]) -> list[np.ndarray]:
        rows_of = [np.zeros((0, width), np.float32) if row is None else row for row in rows]
        if late is None:
            return [normalize(row) for row in rows_of] if unit else rows_of
        return [late_vectors(late, ids, row, role, unit) for ids, row in zip(tokens.input_ids, rows_of, strict=True)]

    return Work(_kind("late", given), job, tokens, finish, marks, cost)


def _classify(engine: Engine, jobs: _Jobs, inputs: Any, given: Mapping[str, Any], stop: Stop) -> Preparation:
    options = _options("classify", given, **_CUT, top_k=1, function_to_apply=None)
    top_k, function = positive_int_or_none("top_k", options["top_k"]), options["function_to_apply"]
    check_function("function_to_apply", function)
    runner = engine.runner_of("classify")
    outputs = runner.config.outputs
    cost = Cost(sequence=_NUMBER * outputs + _DICTIONARY * min(top_k or outputs, outputs))
    texts = yield from _checked(inputs, cost, _input)
    tokens, marks = yield from _tokenized(texts, lambda part: runner.encoder.tokens(part, stop=stop),
                                          options["truncation"], cost)
    return _by_logits(_kind("classify", given), jobs, runner, tokens, marks, cost,
                      lambda logits: labels_of(runner, logits, top_k, function))


def _by_logits(kind: Hashable, jobs: _Jobs, runner: HeadRunner, tokens: Tokens, marks: list[bool], cost: Cost,
               finish: Callable[[np.ndarray], Any]) -> Work:
    """Return the work of a head with one row of logits for each text. finish: gets float32 [n, labels]."""

    def collect(rows: list[Any]) -> Any:
        logits = np.zeros((len(rows), runner.config.outputs), np.float32)
        for i, row in enumerate(rows):
            if row is not None:     # a text without tokens has zeros
                logits[i] = row[0]
        return finish(logits)

    return Work(kind, jobs.logits(runner), tokens, collect, marks, cost)


def _scored(runner: HeadRunner, inputs: Any, prompt: str, truncation: Any, stop: Stop
            ) -> Generator[int, None, tuple[Tokens, list[bool], Cost]]:
    """Return the tokens of pairs, whether each was cut, and what they cost."""
    cost = Cost(sequence=_NUMBER * runner.config.outputs + _DICTIONARY)
    pairs = yield from _checked(inputs, cost, check_pair)
    tokens, marks = yield from _tokenized(
        pairs, lambda part: runner.encoder.tokenizer.pairs([(prompt + first, second) for first, second in part], stop),
        truncation, cost, prompt)
    return tokens, marks, cost


def _score(engine: Engine, jobs: _Jobs, inputs: Any, given: Mapping[str, Any], stop: Stop) -> Preparation:
    options = _options("score", given, **_PROMPT, **_CUT, logits=False, activation_fn=None, apply_softmax=False)
    as_logits, apply_softmax = (flag(name, options[name]) for name in ("logits", "apply_softmax"))
    runner, prompt = engine.runner_of("classify"), _prompt(engine, options["prompt"], options["prompt_name"])
    tokens, marks, cost = yield from _scored(runner, inputs, prompt, options["truncation"], stop)
    return _by_logits(_kind("score", given), jobs, runner, tokens, marks, cost,
                      lambda logits: scores_of(runner, logits, options["activation_fn"], as_logits=as_logits,
                                               apply_softmax=apply_softmax))


def _query(inputs: Any) -> tuple[str, list[str]]:
    """Return the query and the documents of a request, which are not checked; raises `InputError`."""
    if not isinstance(inputs, (tuple, list)) or len(inputs) != 2:
        raise InputError(f"the inputs of rank are a query and a list of documents, not {shown(inputs)}")
    if not isinstance(inputs[1], (list, tuple)):
        raise InputError(f"documents must be a list of texts, not {shown(inputs[1])}")
    return check_text("query", inputs[0]), list(inputs[1])


def _document(i: int, given: Any) -> Any:
    return check_sentence(i, given, "documents", pairs=False)


_RANKED = Cost(sequence=_NUMBER + _DICTIONARY)
"""What a document of a ranked list costs."""


def _ranked(runner: HeadRunner, query: str, documents: Any, truncation: Any, stop: Stop
            ) -> Generator[int, None, tuple[list[str], Tokens, list[bool]]]:
    """Return the documents of a query, the tokens of each with the query, and whether each was cut.

    Each pair has at least the tokens of the query, which are counted before any document is read.
    """
    tokenizer = runner.encoder.tokenizer
    yield _RANKED.of(len(documents), len(documents))
    with reporting(Cuts(truncation=True)):
        [ids] = tokenizer([query], stop).input_ids
    least = max(1, min(len(ids), tokenizer.limit) - 1)      # with fewer special tokens than the query alone has
    yield _RANKED.of(len(documents), least * len(documents))
    texts = yield from _checked(documents, _RANKED, _document)
    # Of a long query as much is read for each pair as truncation looks at, so a slice has fewer pairs.
    tokens, marks = yield from _tokenized(
        texts, lambda part: tokenizer.pairs([(query, text) for text in part], stop), truncation, _RANKED,
        prompt=query[: START_CHARACTERS * tokenizer.limit], least=least)
    return texts, tokens, marks


def _rank(engine: Engine, jobs: _Jobs, inputs: Any, given: Mapping[str, Any], stop: Stop) -> Preparation:
    options = _options("rank", given, **_PROMPT, **_CUT, top_k=None, return_documents=False, activation_fn=None)
    runner = engine.runner_of("classify", "rank")
    check_ranks(runner)
    (query, documents), top_k = _query(inputs), positive_int_or_none("top_k", options["top_k"])
    shows = flag("return_documents", options["return_documents"])
    prompt = _prompt(engine, options["prompt"], options["prompt_name"])
    texts, tokens, marks = yield from _ranked(runner, prompt + query, documents, options["truncation"], stop)
    return _by_logits(_kind("rank", given), jobs, runner, tokens, marks, _RANKED,
                      lambda logits: ranks_of(runner, logits, texts if shows else None, top_k, limit=None,
                                              function=options["activation_fn"]))


def _tag(engine: Engine, jobs: _Jobs, inputs: Any, given: Mapping[str, Any], stop: Stop) -> Preparation:
    options = _options("tag", given, **_CUT, aggregation_strategy="none", ignore_labels=("O",), stride=None,
                       words="spaces")
    tagging, stride = check_tagging(options["aggregation_strategy"], options["ignore_labels"], options["stride"],
                                    options["words"])
    runner = engine.runner_of("tag")
    cost = Cost(token=_NUMBER * runner.config.outputs + _PLACE + _DICTIONARY)
    texts = yield from _checked(inputs, cost, _text)
    marks: list[bool] = []
    cuts = Cuts(flag("truncation", options["truncation"]), marks=marks)
    windows: list[list[Places]] = []
    tokens = 0
    for part in slices(texts, SLICE_TEXTS, SLICE_CHARACTERS):
        rest = len(texts) - part.stop
        yield cost.of(len(texts), tokens + rest)
        some = texts[part.start : part.stop]
        counted = 0
        if stride is not None:      # a text may have as many windows as tokens, so they are counted first
            for text in some:
                counted += runner.encoder.tokenizer.window_tokens(text, stride, _MOST_TAGGED, stop)
                yield cost.of(len(texts), tokens + counted + rest)
        with reporting(cuts):
            windows += (made := tag_windows(runner, some, stride=stride, split=False, stop=stop))
        tokens += sum(len(places.input_ids) for of_text in made for places in of_text)

    def finish(rows: list[Any]) -> list[Any]:
        logits = {n: row for n, row in enumerate(rows) if row is not None}
        return list(entities_of(runner, texts, windows, logits, tagging, split=False))

    counts = [sum(len(places.input_ids) for places in of_text) for of_text in windows]
    return Work(_kind("tag", given), jobs.logits(runner), tokens_of(windows), finish, marks or [False] * len(texts),
                cost, counts=counts)


def _kind(task: str, given: Mapping[str, Any]) -> Hashable:
    """Return the `Work.kind` of a request: its task and the options that it gave."""
    return task, repr(sorted(given.items()))


# A `Reranker` has its own calibration and, for a cross-encoder, the prompt that `Engine.predict` would choose.


def _score_by_reranker(model: Reranker, engine: Engine, jobs: _Jobs, inputs: Any, given: Mapping[str, Any], stop: Stop
                       ) -> Preparation:
    options = _options("score", given, **_CUT, logits=False)
    scores, runner = _scores(model, options), engine.runner_of("classify")
    tokens, marks, cost = yield from _scored(runner, inputs, _prompt(engine), options["truncation"], stop)
    return _by_logits(_kind("score", given), jobs, runner, tokens, marks, cost, lambda logits: scores(logits[:, 0]))


def _rank_by_reranker(model: Reranker, engine: Engine, jobs: _Jobs, inputs: Any, given: Mapping[str, Any], stop: Stop
                      ) -> Preparation:
    options = _options("rank", given, **_CUT, logits=False, top_k=None, return_documents=False)
    (query, documents), runner = _query(inputs), engine.runner_of("classify")
    ranks = _ranks(model, options)
    texts, tokens, marks = yield from _ranked(runner, _prompt(engine) + query, documents, options["truncation"], stop)
    return _by_logits(_kind("rank", given), jobs, runner, tokens, marks, _RANKED,
                      lambda logits: ranks(logits[:, 0], texts))


def _scores(model: Reranker, options: Mapping[str, Any]) -> Callable[[np.ndarray], Any]:
    """Return the function from logits [n] to the scores of pairs."""
    as_logits = flag("logits", options["logits"])
    return lambda logits: logits if as_logits else model.scores_of(logits)


def _ranks(model: Reranker, options: Mapping[str, Any]) -> Callable[[np.ndarray, list[str]], Any]:
    """Return the function from logits [n] and documents to the ranked list of documents."""
    top_k, as_logits = positive_int_or_none("top_k", options["top_k"]), flag("logits", options["logits"])
    shows = flag("return_documents", options["return_documents"])
    return lambda logits, texts: model.ranks_of(logits, texts if shows else None, top_k, as_logits=as_logits)


def _by_prompts(model: Reranker, kind: Hashable, pairs: Sequence[tuple[str, str]], options: Mapping[str, Any],
                stop: Stop, finish: Callable[[np.ndarray], Any]) -> Preparation:
    """Return the work of a language model. It has a job of its own, so that the request runs alone."""
    prompts: list[Any] = []
    truncated: list[bool] = []
    tokens = 0
    for part in slices(pairs, SLICE_TEXTS, SLICE_CHARACTERS):
        yield _RANKED.of(len(pairs), tokens + len(pairs) - part.start)
        some = pairs[part.start : part.stop]
        marks: list[bool] = []
        with reporting(Cuts(flag("truncation", options["truncation"]), marks=marks)):
            prompts += (made := model.prompts(some, options["instruction"], stop))
        tokens += sum(map(len, made))
        # `Reranker.prompts` makes the prompts one query after the other, and reports whether it cut them in that order.
        firsts: dict[str, int] = {}
        for i, (query, _) in enumerate(some):
            firsts.setdefault(query, i)
        order = sorted(range(len(some)), key=lambda i: firsts[some[i][0]])
        truncated += [mark for _, mark in sorted(zip(order, marks, strict=True))]

    def compute(pieces: Sequence[Piece], stop: Stop) -> Iterator[tuple[int, Any]]:
        [(_, places)] = pieces      # of this request alone
        yield from enumerate(model.prompt_logits([prompts[i] for i in places], [pairs[i][0] for i in places], stop))

    return Work(kind, Job("prompts", compute), Tokens(prompts, []), lambda rows: finish(np.array(rows, np.float32)),
                truncated, _RANKED)


def _score_by_prompts(model: Reranker, inputs: Any, given: Mapping[str, Any], stop: Stop) -> Preparation:
    options = _options("score", given, **_CUT, logits=False, instruction=None)
    scores = _scores(model, options)
    pairs = yield from _checked(inputs, _RANKED, check_pair)
    return (yield from _by_prompts(model, _kind("score", given), pairs, options, stop, scores))


def _rank_by_prompts(model: Reranker, inputs: Any, given: Mapping[str, Any], stop: Stop) -> Preparation:
    options = _options("rank", given, **_CUT, logits=False, instruction=None, top_k=None, return_documents=False)
    (query, documents), ranks = _query(inputs), _ranks(model, options)
    texts = yield from _checked(documents, _RANKED, _document)
    return (yield from _by_prompts(model, _kind("rank", given), [(query, text) for text in texts], options, stop,
                                   lambda logits: ranks(logits, texts)))
