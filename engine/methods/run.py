"""Run methods: the one loop over slices and batches, which keeps the memory of a call of any size bounded."""

from __future__ import annotations

from typing import Any

from ..encoding.call import PLAIN, Call, calling
from .method import AnyOptions, EncodingModel, Method
from .workload import Workload


def run(method: Method[AnyOptions], model: EncodingModel, inputs: Any, options: AnyOptions, *,
        batch_size: Any = None, show_progress_bar: Any = None, truncation: Any = None, timeout: Any = None) -> Any:
    """Return the result of a method for inputs, or of a single input its result alone.

    batch_size, show_progress_bar, truncation, timeout: as in `Engine.encode`. Raises what the method raises.
    """
    method.needs(model)
    read, single = method.read(inputs, options)
    workload = method.prepare(model, read, options)
    with calling(workload.inputs, batch_size, show_progress_bar, truncation, timeout) as call:
        result = compute(workload, call)
    return result[0] if single else result


def compute(workload: Workload, call: Call = PLAIN) -> Any:
    """Return the result of a call whose sequences are computed alone, one slice after the other."""
    for places in workload.parts():
        part = workload.slice(places, call.stop)
        for numbers, rows in workload.computation.rows(part.tokens, call):
            workload.take(part, numbers, rows, call.stop)
            if part.windows is None:
                call.advance(len(numbers))
        workload.end(part, call.stop)
        if part.windows is not None:
            call.advance(len(places))
    return workload.result()
