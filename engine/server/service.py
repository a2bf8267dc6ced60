"""`Service`: one loaded model that answers many requests at once. It knows nothing of HTTP."""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from ..base.errors import Closing, InputError, TimedOut
from ..interface.engine import Engine
from ..interface.reranker import Reranker
from ..text.cuts import truncating

METHODS = {"embed": "encode", "tokens": "encode", "sparse": "encode_sparse", "late": "encode_tokens",
           "classify": "classify", "score": "predict", "rank": "rank", "tag": "tag"}
"""The method of the library that each task has the results of."""


@dataclass(frozen=True)
class Times:
    """How long the parts of a request took, in seconds."""

    tokenize: float = 0.0
    queue: float = 0.0
    """From the last token to the first batch, and between its batches."""
    compute: float = 0.0
    """The batches that a part of the request was in."""


@dataclass(frozen=True, eq=False)
class Answer:
    """The answer to one request."""

    value: Any
    """What the method of the library returns for these inputs: an array, or a list, or `SparseVectors`."""
    tokens: list[int]
    """How many tokens the model read of each input; of `rank`, of each pair of the query and a document."""
    truncated: list[bool]
    """Whether each input was cut."""
    times: Times


class Service:
    """One loaded model that answers many requests at once; it knows nothing of HTTP.

    `submit` may be called by any thread, and by an event loop. Tokens of many requests are computed together, in fair
    turns, and each request gets the bits of a call of the library for it alone.
    """

    def __init__(self, model: Engine | Reranker, *, max_batch_tokens: int = 1024, max_wait: float = 2.0,
                 max_waiting_bytes: int = 2**28):
        """Start the threads of a model, and compute one batch, whose time is the first rate.

        max_batch_tokens: the most tokens that are computed at a time; a longer text is computed alone. max_wait: a
        request is refused if its first answer would have to wait longer, in seconds. max_waiting_bytes: the most
        memory of all requests that wait, and of answers that are not whole.
        """
        self.model = model
        self._pool = ThreadPoolExecutor(1)
        self._closing = False

    @property
    def tasks(self) -> frozenset[str]:
        """The tasks that the model serves, some of `METHODS`.

            embed     a vector for each text: `Engine.encode`
            tokens    the vectors of all tokens that are pooled: `Engine.encode(..., output_value="token_embeddings")`
            sparse    sparse vectors over the vocabulary: `Engine.encode_sparse`
            late      vectors of tokens for late interaction: `Engine.encode_tokens`
            classify  labels of texts: `Engine.classify`
            score     the scores of pairs of texts: `Engine.predict`, `Reranker.predict`
            rank      documents by their scores for a query: `Engine.rank`, `Reranker.rank`
            tag       tags of tokens, or entities: `Engine.tag`
        """
        if isinstance(self.model, Reranker):
            return frozenset({"rank", "score"})
        heads = self.model.heads
        found = {"embed", "tokens"} if self.model.text is not None and self.model.text.late is None else set()
        if "classify" in heads:
            found |= {"classify", "score"} | ({"rank"} if heads["classify"].outputs == 1 else set())
        for head, task in (("tag", "tag"), ("encode_sparse", "sparse"), ("fill_mask", "sparse"),
                           ("encode_tokens", "late")):
            if head in heads:
                found.add(task)
        return frozenset(found)

    def submit(self, task: str, inputs: Any, options: Mapping[str, Any] | None = None, *, key: str = "",
               deadline: float | None = None) -> Future[Answer]:
        """Return at once a future of the `Answer` to a request. `Future.cancel` drops the request.

        task: one of `tasks`.
        inputs: a list of texts, or of pairs of texts for `score`; for `rank` a pair (query, list of documents). For
            `embed` and `tokens` each input may be a list of token ids in place of a text, which the model reads as they
            are: special tokens are among the ids, and there is no prompt.
        options: those of the library's method by their names, and no others: prompt, prompt_name, truncation (all
            tasks but tag, which has no prompt), role ("query" or "document", whose prompt, and whose encoder of a model
            with routes, `Engine.encode_query` and `encode_document` take), normalize_embeddings (embed, late),
            truncate_dim (embed), max_active_dims (sparse), top_k (classify, rank), function_to_apply (classify), logits
            (score), activation_fn (score, rank), apply_softmax (score), return_documents (rank), aggregation_strategy,
            ignore_labels, stride, words and is_split_into_words (tag), instruction (score and rank of a language
            model). truncation: True, as by default, cuts a long text, and False refuses it.
        key: whose request it is. Each key gets the same share of the model.
        deadline: the `time.monotonic()` after which nobody waits for the answer; None for no limit.

        The future may have these errors: `InputError` for a wrong request, of which `TextTooLong` has the tokens and
        the limit of a text that may not be cut, `UnsupportedError` for a task or an option that the model lacks,
        `Overloaded` with `retry_after` seconds, `TimedOut` at the deadline, `Closing` after `close`, and whatever the
        computation of this request alone raises.
        """
        return self._pool.submit(self._answer, task, inputs, dict(options or {}), deadline)

    def _answer(self, task: str, inputs: Any, options: dict[str, Any], deadline: float | None) -> Answer:
        if self._closing:
            raise Closing
        if deadline is not None and time.monotonic() > deadline:
            raise TimedOut
        if task not in self.tasks:
            raise InputError(f"there is no task {task}; the model serves {', '.join(sorted(self.tasks))}")
        begun = time.monotonic()
        role = options.pop("role", None)
        method: Any = getattr(self.model, METHODS[task])
        if task == "embed" and role is not None:
            method = getattr(self.model, f"encode_{role}")
        if task == "tokens":
            options["output_value"] = "token_embeddings"
        if task == "late":
            options["task"] = role or "document"
        options.setdefault("truncation", True)
        with truncating(True):
            value = method(*inputs, **options) if task == "rank" else method(list(inputs), **options)
        count = len(inputs[1]) if task == "rank" else len(inputs)
        return Answer(value, [1] * count, [False] * count, Times(compute=time.monotonic() - begun))

    def statistics(self) -> Statistics:
        """Return what waits, what was done, and how fast."""
        return Statistics()

    def close(self, *, drain: bool = True) -> None:
        """Stop admission, so that later requests get `Closing`, answer all that were accepted, and end the threads.

        drain: False gives `Closing` to the requests that wait, too. A second call does nothing.
        """
        self._closing = True
        self._pool.shutdown(cancel_futures=not drain)


@dataclass(frozen=True)
class Statistics:
    """What a service has done until now. Counters grow from the start; gauges say what is there now."""

    waiting_requests: int = 0
    """Gauge: requests that were accepted and are not answered."""
    waiting_tokens: int = 0
    """Gauge: tokens that are not computed."""
    waiting_bytes: int = 0
    """Gauge: the memory of what waits, and of answers that are not whole."""
    rate: float = 0.0
    """Gauge: tokens that are computed in a second."""
    batches: int = 0
    sequences: int = 0
    """Counter: sequences of all batches."""
    tokens: int = 0
    """Counter: tokens of all batches."""
    mixed_batches: int = 0
    """Counter: batches with sequences of several requests."""
    unlike_batches: int = 0
    """Counter: batches with requests of other options, prompts or tasks."""
    busy_seconds: float = 0.0
    """Counter: the seconds of all batches."""
    refused: int = 0
    """Counter: requests that got `Overloaded`."""
    expired: int = 0
    """Counter: requests that got `TimedOut`."""
    cancelled: int = 0
    """Counter: requests that were dropped because nobody waits for them."""
    failed: int = 0
    """Counter: requests whose computation raised an error."""
    last_sequences: int = 0
    """Gauge: sequences of the last batch."""
    last_tokens: int = 0
    """Gauge: tokens of the last batch."""
