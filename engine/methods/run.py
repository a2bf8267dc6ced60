"""Run methods: the one loop over slices and batches, which keeps the memory of a call of any size bounded.

A stream is a call after the other, of inputs that come one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

from ..base.arguments import is_one_of, positive_int
from ..base.errors import InputError, UnsupportedError, listed, shown
from ..base.progress import growing_progress
from ..encoding.call import PLAIN, Call
from ..images import (
    Images,
    begins_with_image,
    is_image,
    read_images,
    refuse_image_among_texts,
    warn_of_paths,
)
from ..model.precision import canonical_name
from ..text.cuts import truncating
from ..text.sentences import check_collection, check_sentence
from .method import AnyOptions, Method
from .table import STREAMED
from .workload import Workload


def run(method: Method[AnyOptions], model: Any, inputs: Any, options: AnyOptions, *,
        batch_size: Any = None, show_progress_bar: Any = None, truncation: Any = None, timeout: Any = None) -> Any:
    """Return the result of a method for inputs, or of a single input its result alone.

    model: an `EncodingModel`, or for the methods of a reranker a `Reranker`.
    batch_size: the most sequences of a batch. truncation: whether long texts are cut without a warning, or refused.
    timeout: seconds after which the call raises `TimedOut`. Raises what the method raises.
    """
    workload, single = _workload(method, model, inputs, options)
    call = Call.of(batch_size, timeout)
    with truncating(truncation), call.showing(len(workload.inputs), show_progress_bar) as shown_call:
        result = compute(workload, shown_call)
    return result[0] if single else result


def _workload(method: Method[AnyOptions], model: Any, inputs: Any, options: AnyOptions) -> tuple[Workload, bool]:
    """Read the inputs of a call as texts or as images; return its work, and whether the caller gave one input alone."""
    both = False        # whether the method and the model read texts and images
    if method.prepare_images is not None and model.reads_images:
        alone = model.text is None
        both = not alone
        inputs = [*inputs] if both and isinstance(inputs, Iterator) and not is_image(inputs) else inputs
        if alone or begins_with_image(inputs):
            images, single = read_images(inputs, alone)
            return method.prepare_images(model, images, options), single
        refuse_image_among_texts(inputs)
    method.needs(model)
    read, single = method.read(inputs, options)
    workload = method.prepare(model, read, options)
    if both:
        warn_of_paths(inputs)
    return workload, single


def compute(workload: Workload, call: Call = PLAIN) -> Any:
    """Return the result of a call, one slice of its sequences after the other."""
    with workload.reading():
        for places in workload.parts():
            part = workload.slice(places, call.stop)
            for numbers, rows in workload.computation.rows(part.tokens, call):
                workload.take(part, numbers, rows, call.stop)
                if part.sequences is None:
                    call.advance(len(numbers))
            workload.end(part, call.stop)
            if part.sequences is not None:
                call.advance(len(places))
    return workload.result()


def encode_stream(engine: Any, sentences: Iterable[Any], rows: Any, result: Any,
                  options: dict[str, Any]) -> Iterator[Any]:
    """Check the arguments of `Engine.encode_stream`, and return its iterator."""
    if result is None or not is_one_of(result, STREAMED):
        raise InputError(f"result must be one of {listed(STREAMED)}, not {shown(result)}")
    if isinstance(sentences, str):
        raise InputError("encode_stream takes sentences one after the other, and a string is a single one; pass it to "
                         f"{STREAMED[result].name}, or in a list")
    rows = positive_int("rows", rows)
    if options.get("ranges") is None and _by_ranges(options.get("precision")):
        raise UnsupportedError(f"vectors in {options['precision']} need the ranges of all vectors, which a stream does "
                               "not know before its end; pass ranges=np.stack([v.min(axis=0), v.max(axis=0)]) of many "
                               "float32 vectors v")
    options = dict(options)
    show = options.pop("show_progress_bar", None)
    encode = getattr(engine, STREAMED[result].name)
    alone = engine.reads_images and engine.text is None
    takes_images = engine.reads_images and STREAMED[result].prepare_images is not None
    try:
        encode([], **options)               # refuses wrong options now, and not when the first array is asked for
    except UnsupportedError:
        if not takes_images or alone:
            raise
        encode(Images([]), **options)       # the model may do for images what it does not for texts
    return _stream(encode, _parts(iter(check_collection(sentences)), rows, takes_images, alone), show, options)


def _parts(inputs: Iterator[Any], rows: int, takes_images: bool, alone: bool) -> Iterator[Any]:
    """Yield `rows` checked inputs at a time: texts, or images if the first input is one.

    alone: whether the model reads no texts.
    """
    first, of_images = 0, takes_images and alone
    while part := [*islice(inputs, rows)]:
        of_images = of_images or (first == 0 and takes_images and is_image(part[0]))
        if of_images:
            yield read_images(part, alone, first=first)[0]
        else:
            yield [check_sentence(i, sentence) for i, sentence in enumerate(part, first)]
        first += len(part)


def _stream(encode: Callable[..., Any], parts: Iterator[Any], show: bool | None,
            options: dict[str, Any]) -> Iterator[Any]:
    """Yield the vectors of each part, while progress is shown; texts that are cut are warned of once."""
    with growing_progress(show, "Sentences", " sentences") as (advance, expect):
        for part in parts:
            expect(len(part))
            with truncating(options.get("truncation")) as cuts:     # in place of the call, to warn once for all arrays
                vectors = encode(part, show_progress_bar=False, **options | {"truncation": None})
            if cuts.cut:
                options = options | {"truncation": True}        # so that no later part warns again
            advance(len(part))
            yield vectors


def _by_ranges(precision: Any) -> bool:
    """Return whether vectors in a precision are integers, which depend on the ranges of all vectors."""
    return isinstance(precision, str) and canonical_name(precision) in ("int8", "uint8")
