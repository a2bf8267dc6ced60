"""Counts and times of requests, for Prometheus, by the names of text-embeddings-inference and some of our own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from prometheus_client.core import CollectorRegistry, Metric
from prometheus_client.exposition import generate_latest

from . import logs
from .histograms import SECONDS, Histogram, sum_of
from .requests import Times
from .service import Service

_PARTS = ("", "_tokenization", "_queue", "_inference")
EMBEDDING = frozenset({"embed", "tokens", "sparse", "late"})
"""The tasks that TEI counts as embeddings; the others are predictions."""
CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    """What a server did until now. The thread of the event loop alone calls it."""

    def __init__(self, service: Service, info: Mapping[str, str]):
        """info: the labels of `engine_model_info`."""
        self._service, self._info = service, info
        self._requests: Counter[tuple[str, str]] = Counter()
        self._tasks: Counter[str] = Counter()
        self._times = {kind: [Histogram(SECONDS) for _ in _PARTS] for kind in ("embed", "predict")}
        self._lengths = Histogram([2.0**i for i in range(18)])
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def begin(self, task: str, single: bool) -> None:
        """Count a request that was understood."""
        self._requests["te_request_count", _method(single)] += 1
        if task:
            self._tasks[f"te_{_kind(task)}_count"] += 1

    def answer(self, task: str, single: bool, seconds: float, times: Times, tokens: Sequence[int]) -> None:
        """Count an answer. tokens: how many the model read of each input."""
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
        """Count a request without an answer."""
        self._requests["te_request_failure", reason] += 1

    def text(self) -> bytes:
        """Return all numbers in the text format of Prometheus."""
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
        for name in ("te_embed_count", "te_embed_success", "te_predict_count", "te_predict_success"):
            yield _number(name, "Requests for vectors (embed), or for labels, tags and ranks (predict)",
                          self._tasks[name])
        times = {"request": [sum_of(both) for both in zip(*self._times.values(), strict=True)], **self._times}
        for kind, histograms in times.items():
            for part, histogram in zip(_PARTS, histograms, strict=True):
                yield histogram.family(f"te_{kind}{part}_duration", "Seconds of a request, or of a part of it")
        yield self._lengths.family("te_request_input_length", "Tokens of an input")
        numbers = self._service.statistics()
        for name, text, counts, total in (
                ("te_batch_next_size", "Sequences of a batch", numbers.by_sequences, numbers.sequences),
                ("te_batch_next_tokens", "Tokens of a batch", numbers.by_tokens, numbers.tokens)):
            yield Histogram([2.0**i for i in range(len(counts) - 1)], counts, total).family(name, text)
        figures: tuple[tuple[str, str, float], ...] = (     # gauges, and counters where a name ends in _total
                ("te_queue_size", "Requests that wait for their answer", numbers.waiting_requests),
                ("engine_queue_tokens", "Tokens that wait to be computed", numbers.waiting_tokens),
                ("engine_queue_bytes", "Memory of what waits, and of answers that are not whole",
                 numbers.waiting_bytes),
                ("engine_tokens_per_second", "The measured rate, by which requests are admitted", numbers.rate),
                ("engine_batches_total", "Batches", numbers.batches),
                ("engine_mixed_batches_total", "Batches with sequences of several requests", numbers.mixed_batches),
                ("engine_sequences_total", "Sequences of all batches", numbers.sequences),
                ("engine_tokens_total", "Tokens of all batches", numbers.tokens),
                ("engine_busy_seconds_total", "Seconds of all batches; its rate is the utilisation",
                 numbers.busy_seconds),
                ("engine_log_lines_lost_total", "Lines of the log that nobody read, or that could not be written",
                 logs.lost()))
        for name, text, number in figures:
            yield _number(name, text, number, "gauge")
        rejected = Metric("engine_rejected", "Requests that were not computed, by the reason", "counter")
        for reason, count in (("overloaded", numbers.refused), ("late", numbers.expired), ("gone", numbers.cancelled),
                              ("failed", numbers.failed)):
            rejected.add_sample("engine_rejected_total", {"reason": reason}, count)
        yield rejected
        info = Metric("engine_model_info", "The model", "gauge")
        info.add_sample("engine_model_info", dict(self._info), 1)
        yield info


def _number(name: str, text: str, value: Any, kind: str = "unknown") -> Metric:
    """Return one number; a name that ends in _total is a counter, to which Prometheus puts that end itself."""
    base = name.removesuffix("_total")
    metric = Metric(base, text, kind if base == name else "counter")
    metric.add_sample(name, {}, value)
    return metric


def _method(single: bool) -> str:
    return "single" if single else "batch"


def _kind(task: str) -> str:
    return "embed" if task in EMBEDDING else "predict"
