"""`Metrics`: the page /metrics for Prometheus: TEI's metrics of requests, by its names (te_...), and ours (engine_...).

`app.py` counts requests here; the numbers of queues and models come from the services when the page is made.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from prometheus_client.core import CollectorRegistry, Metric
from prometheus_client.exposition import generate_latest

from . import logs
from .histograms import SECONDS, Histogram, sum_of
from .requests import RequestService, Times
from .service import ServiceStatistics
from .text_service import TEXT_TASKS, TextService, TextStatistics

_PARTS = ("", "_tokenization", "_queue", "_inference")
"""The parts of a request whose times are measured, in the names of their metrics; "" is the whole request."""
EMBEDDING = frozenset({"embed", "tokens", "sparse", "late"})
"""The tasks that TEI counts as embeddings; the others are predictions."""
KINDS = ("embed", "predict", "generate")
"""The kinds of tasks that have metrics of their own, as `_kind` maps tasks to them."""
CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    """The counts and times of all requests since the server started. Only the thread of the event loop calls it."""

    def __init__(self, services: Sequence[RequestService], infos: Sequence[Mapping[str, str]]):
        """services: one a model. infos: for each model the labels of its `engine_model_info`."""
        self._services, self._infos = services, infos
        self._requests: Counter[tuple[str, str]] = Counter()
        """Counts by (name of the metric, value of its label): the label is a method, or the reason of a refusal."""
        self._tasks: Counter[str] = Counter()
        """Counts by the name of the metric, such as te_embed_count."""
        self._times = {kind: [Histogram(SECONDS) for _ in _PARTS] for kind in KINDS}
        """Seconds: for each kind a histogram for each of `_PARTS`, in their order."""
        self._lengths = Histogram([2.0**i for i in range(18)])
        """The number of tokens of each input; buckets to 131,072."""
        self._registry = CollectorRegistry()
        self._registry.register(self)       # it calls `collect` for each page

    def begin(self, task: str, single: bool) -> None:
        """Count a request whose body was understood. task: "" if it needs no model. single: if it has one input."""
        self._requests["te_request_count", _method(single)] += 1
        if task:
            self._tasks[f"te_{_kind(task)}_count"] += 1

    def answer(self, task: str, single: bool, seconds: float, times: Times, tokens: Sequence[int]) -> None:
        """Count an answer. seconds: from request to answer. tokens: the number of tokens of each input."""
        self._requests["te_request_success", _method(single)] += 1
        if not task:
            return
        kind = _kind(task)
        self._tasks[f"te_{kind}_success"] += 1
        parts = seconds, times.tokenize, times.queue, times.compute
        for histogram, value in zip(self._times[kind], parts, strict=True):
            histogram.add(value)
        for length in tokens:
            self._lengths.add(length)

    def refuse(self, reason: str) -> None:
        """Count a request that got no answer, by its reason."""
        self._requests["te_request_failure", reason] += 1

    def text(self) -> bytes:
        """Return all metrics in the text format of Prometheus."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics, for the registry of prometheus-client."""
        for name, label, text in (("te_request_count", "method", "Requests that were understood"),
                                  ("te_request_success", "method", "Requests with an answer"),
                                  ("te_request_failure", "err", "Requests without an answer, by the reason")):
            # Not a CounterMetricFamily, which puts _total behind the name; TEI's names have no such end.
            metric = Metric(name, text, "unknown")
            for (counted, value), count in self._requests.items():
                if counted == name:
                    metric.add_sample(name, {label: value}, count)
            yield metric
        for name in (f"te_{kind}_{what}" for kind in KINDS for what in ("count", "success")):
            yield _number(name, "Requests for vectors (embed), for labels, tags and ranks (predict), or for texts "
                          "(generate)", self._tasks[name])
        # Each part of all kinds together, and of each kind alone.
        times = {"request": [sum_of(kinds) for kinds in zip(*self._times.values(), strict=True)], **self._times}
        for kind, histograms in times.items():
            for part, histogram in zip(_PARTS, histograms, strict=True):
                yield histogram.family(f"te_{kind}{part}_duration", "Seconds of a request, or of a part of it")
        yield self._lengths.family("te_request_input_length", "Tokens of an input")
        counts = [each.statistics() for each in self._services]
        yield from self._shared(counts)
        yield from _of_encoders([each for each in counts if isinstance(each, ServiceStatistics)])
        yield from _of_texts([(each, numbers) for each, numbers in zip(self._services, counts, strict=True)
                              if isinstance(each, TextService)])
        info = Metric("engine_model_info", "The model", "gauge")
        for labels in self._infos:
            info.add_sample("engine_model_info", dict(labels), 1)
        yield info

    def _shared(self, counts: Sequence[Any]) -> Iterator[Metric]:
        """Yield the metrics that models of all kinds have. counts: the statistics of each service."""
        yield _number("te_queue_size", "Requests that wait for their answer",
                      sum(each.waiting_requests for each in counts), "gauge")
        yield _number("engine_queue_bytes", "Memory of what waits, and of answers that are not whole",
                      counts[0].waiting_bytes, "gauge")       # all services share one count
        yield _number("engine_log_lines_lost_total", "Lines of the log that nobody read, or that could not be written",
                      logs.WRITER.lost)
        rejected = Metric("engine_rejected", "Requests that were not computed, by the reason", "counter")
        for reason, field in (("overloaded", "refused"), ("late", "expired"), ("gone", "cancelled"),
                              ("failed", "failed")):
            rejected.add_sample("engine_rejected_total", {"reason": reason},
                                sum(getattr(each, field) for each in counts))
        yield rejected


def _of_encoders(counts: Sequence[ServiceStatistics]) -> Iterator[Metric]:
    """Yield the metrics of models that compute whole sequences, summed over these models."""
    if not counts:
        return
    # Two fields of `ServiceStatistics` each: the counts in buckets, whose bounds are powers of two, and their sum.
    for name, text, buckets, total in (
            ("te_batch_next_size", "Sequences of a batch", "by_sequences", "sequences"),
            ("te_batch_next_tokens", "Tokens of a batch", "by_tokens", "tokens")):
        yield sum_of([Histogram([2.0**i for i in range(len(getattr(each, buckets)) - 1)], getattr(each, buckets),
                                getattr(each, total)) for each in counts]).family(name, text)
    for name, text, field in (      # gauges, and counters where a name ends in _total
            ("engine_queue_tokens", "Tokens that wait to be computed", "waiting_tokens"),
            ("engine_tokens_per_second", "The measured rate, by which requests are admitted", "rate"),
            ("engine_batches_total", "Batches", "batches"),
            ("engine_mixed_batches_total", "Batches with sequences of several requests", "mixed_batches"),
            ("engine_sequences_total", "Sequences of all batches", "sequences"),
            ("engine_tokens_total", "Tokens of all batches", "tokens"),
            ("engine_busy_seconds_total", "Seconds of all batches; its rate is the utilisation", "busy_seconds")):
        yield _number(name, text, sum(getattr(each, field) for each in counts), "gauge")


def _of_texts(models: Sequence[tuple[TextService, TextStatistics]]) -> Iterator[Metric]:
    """Yield the metrics of models that write texts, summed over these models."""
    if not models:
        return
    for name, text, part in (
            ("engine_first_token_seconds", "Seconds from the admission of a request to its first token", "first_token"),
            ("engine_token_gap_seconds", "Seconds between two tokens of an answer", "gaps"),
            ("engine_step_rows", "Answers that get a token in a step", "rows")):
        yield sum_of([getattr(service, part) for service, _ in models]).family(name, text)
    queues = [numbers.queue for _, numbers in models]
    for name, text, field in (      # gauges, and counters where a name ends in _total
            ("engine_prompt_tokens_read_total", "Tokens of prompts that the model has read", "read_tokens"),
            ("engine_prompt_tokens_found_total", "Tokens of prompts that were in the cache", "found_tokens"),
            ("engine_new_tokens_total", "New tokens", "tokens_out"),
            ("engine_cache_tokens", "Tokens that the cells in use have room for", "cache_tokens"),
            ("engine_cache_bytes", "Bytes of the cache", "cache_bytes"),
            ("engine_kept_tokens", "Tokens in the cache that no open request needs", "kept_tokens"),
            ("engine_entered_requests", "Requests that are computed", "open_requests"),
            ("engine_gave_way_total", "How often an answer gave way in a full cache", "times_given_way")):
        yield _number(name, text, sum(getattr(each, field) for each in queues), "gauge")
    for name, text, field in (
            ("engine_new_tokens_per_second", "The measured rate of new tokens", "rate"),
            ("engine_prompt_tokens_per_second", "The measured rate at which prompts are read", "read_rate"),
            ("engine_cache_tokens_most", "The bound of engine_cache_tokens", "most_tokens")):
        yield _number(name, text, sum(getattr(each, field) for _, each in models), "gauge")


def _number(name: str, text: str, value: Any, kind: str = "unknown") -> Metric:
    """Return a metric of one number. A name that ends in _total makes a counter, to which Prometheus adds that end."""
    base = name.removesuffix("_total")
    metric = Metric(base, text, kind if base == name else "counter")
    metric.add_sample(name, {}, value)
    return metric


def _method(single: bool) -> str:
    """Return TEI's label for a request of one input, or of a list."""
    return "single" if single else "batch"


def _kind(task: str) -> str:
    """Return the one of `KINDS` under which TEI counts a task of a service."""
    return "embed" if task in EMBEDDING else "generate" if task in (*TEXT_TASKS, "transcribe") else "predict"
