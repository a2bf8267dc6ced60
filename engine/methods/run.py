"""Run a `Method` to its end: one loop over slices of inputs and batches, so that the memory of a call is bounded.

`encode_stream` makes one such call after the other for an iterator of inputs.
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
    """Return the list of results of a method for inputs, or for one input its result.

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
    """Return (the workload of a call for texts or images, whether the caller gave one input, not a list)."""
    both = False        # whether the method and the model read both texts and images
    if method.prepare_images is not None and model.reads_images:
        images_only = model.text is None
        both = not images_only
        inputs = [*inputs] if both and isinstance(inputs, Iterator) and not is_image(inputs) else inputs
        if images_only or begins_with_image(inputs):
            images, single = read_images(inputs, images_only)
            return method.prepare_images(model, images, options), single
        refuse_image_among_texts(inputs)
    method.needs(model)
    checked, single = method.read(inputs, options)
    workload = method.prepare(model, checked, options)
    if both:
        warn_of_paths(inputs)
    return workload, single


def compute(workload: Workload, call: Call = PLAIN) -> Any:
    """Compute a workload, one slice of its inputs after the other, and return the result of the call."""
    with workload.reading():
        for places in workload.parts():
            part = workload.slice(places, call.stop)
            for numbers, rows in workload.computation.rows(part.tokens, call):
                workload.take(part, numbers, rows, call.stop)
                if part.sequences is None:      # each input is one sequence, so it is done
                    call.advance(len(numbers))
            workload.end(part, call.stop)
            if part.sequences is not None:
                call.advance(len(places))
    return workload.result()


def encode_stream(engine: Any, sentences: Iterable[Any], rows: Any, result: Any,
                  options: dict[str, Any]) -> Iterator[Any]:
    """Check the arguments of `Engine.encode_stream` now, and return the iterator over its results."""
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
    images_only = engine.reads_images and engine.text is None
    takes_images = engine.reads_images and STREAMED[result].prepare_images is not None
    try:
        encode([], **options)               # refuses wrong options now, and not when the first array is asked for
    except UnsupportedError:
        if not takes_images or images_only:
            raise
        encode(Images([]), **options)       # the model may do for images what it does not for texts
    return _stream(encode, _parts(iter(check_collection(sentences)), rows, takes_images, images_only), show, options)


def _parts(inputs: Iterator[Any], rows: int, takes_images: bool, images_only: bool) -> Iterator[Any]:
    """Yield `rows` checked inputs at a time: texts, or images if the first input is one.

    images_only: whether the model reads no texts.
    """
    first, of_images = 0, takes_images and images_only      # first: the number of the first input of a part
    while part := [*islice(inputs, rows)]:
        of_images = of_images or (first == 0 and takes_images and is_image(part[0]))
        if of_images:
            yield read_images(part, images_only, first=first)[0]
        else:
            yield [check_sentence(i, sentence) for i, sentence in enumerate(part, first)]
        first += len(part)


def _stream(encode: Callable[..., Any], parts: Iterator[Any], show: bool | None,
            options: dict[str, Any]) -> Iterator[Any]:
    """Yield the results of each part, and show progress; warn only once of texts that are cut."""
    with growing_progress(show, "Sentences", " sentences") as (advance, expect):
        for part in parts:
            expect(len(part))
            with truncating(options.get("truncation")) as cuts:     # around the call, which then does not warn
                vectors = encode(part, show_progress_bar=False, **options | {"truncation": None})
            if cuts.cut:
                options = options | {"truncation": True}        # so that no later part warns again
            advance(len(part))
            yield vectors


def _by_ranges(precision: Any) -> bool:
    """Return whether a precision is of integers, whose scales come from the ranges of all vectors."""
    return isinstance(precision, str) and canonical_name(precision) in ("int8", "uint8")
