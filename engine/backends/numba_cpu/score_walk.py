"""Compile a score function with Numba into a loop over a block of scores, inlined and vectorised.

The loop is a C function `ScoreMod` (../cython_cpu/table.pxd). A row of a block is short, 8 to 64 scores, and LLVM's
vectoriser compiles a loop over it badly: if it knows the number of iterations it unrolls the loop before it vectorises
it, and if not it prepares for many more iterations than there are. Therefore this module emits the loop over `LANES`
queries itself, with metadata that guides the vectoriser.
"""

from __future__ import annotations

import linecache
import re
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np import arrayobj

from ...errors import InputError, UnsupportedError

LANES = 16
"""Iterations of the inner loop: the smallest number for which LLVM's vectoriser applies all its optimisations."""

INDEX = 2**28 - 1
"""Mask of every index, so that LLVM knows two facts.

No subscript is negative, and a sum or difference of a few indices fits int32, which AVX2 can convert to floats; it
cannot convert int64. Sequences are shorter than half of it.
"""

SCORED = (types.float32, types.intp, types.intp, types.intp, types.intp)
SCORE_MOD = types.void(types.CPointer(types.float32), *[types.intp] * 7, types.voidptr)
OPTIONS = {"error_model": "numpy", "forceinline": True}


def compile_walk(function: FunctionType, arguments: Sequence[tuple[np.dtype, int]]) -> Any:
    """Compile the loop that applies a function, and return it as a `numba.core.ccallback.CFunc`.

    The CFunc must be kept for as long as its `address` is in use. `arguments` are the dtypes and ranks of the
    function's arguments after (score, b, h, q_index, kv_index); rank 0 is a scalar. The C function's `captured` points
    to int64 words: for each of these arguments its address, then its shape. Raises `UnsupportedError` if Numba cannot
    compile the function, and `InputError` if its result is not a real number.
    """
    extra = types.Tuple([argument_type(dtype, rank) for dtype, rank in arguments])
    change = numba.njit(function, **OPTIONS)
    try:
        change.compile(SCORED + extra.types)
    except Exception as error:  # the compiler raises many types of exceptions for an unsupported function
        raise UnsupportedError(f"{complaint(function, error)}; backend='reference' runs any function") from None
    result = change.overloads[SCORED + extra.types].signature.return_type
    if not isinstance(types.unliteral(result), types.Number | types.Boolean) or result in types.complex_domain:
        raise InputError(f"{place(function)}: expected a number as the result in every case, got {result}")

    unpack, change_lanes = unpacking(extra), lanes(extra)

    def walk(scores, stride, b, h, query, n, key, keys, captured):  # type: ignore[no-untyped-def]
        extra = unpack(captured)
        b, h = b & INDEX, h & INDEX
        whole = n // LANES * LANES
        for j in range(keys):
            kv = (key + j) & INDEX
            row = j * stride
            for i in range(0, whole, LANES):
                change_lanes(change, scores, row + i, b, h, query + i, kv, extra)
            for i in range(whole, n):
                scores[row + i] = np.float32(change(scores[row + i], b, h, (query + i) & INDEX, kv, *extra))

    compiled = numba.cfunc(SCORE_MOD, **OPTIONS)(walk)
    if re.search(r"call .*@numba_gil_ensure", compiled.inspect_llvm()):
        raise UnsupportedError(
            f"{place(function)}: an exception cannot leave the kernels, but it may raise one, print or allocate: "
            "return a number in every case, -inf to mask"
        )
    return compiled


def argument_type(dtype: np.dtype, rank: int) -> types.Type:
    """Return Numba's type of an argument: a scalar, or a read-only C-contiguous array."""
    element = numba.from_dtype(dtype)
    return types.Array(element, rank, "C", readonly=True) if rank else element


def unpacking(extra: types.BaseTuple) -> Callable:
    """Return an intrinsic that builds the tuple of a function's further arguments from `captured`."""

    @intrinsic
    def unpack(typing_context, captured):  # type: ignore[no-untyped-def]
        def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
            words = builder.bitcast(arguments[0], context.get_value_type(types.intp).as_pointer())
            values, position = [], 0
            for kind in extra.types:
                rank = getattr(kind, "ndim", 0)
                head = [builder.load(builder.gep(words, [ir.IntType(64)(position + i)])) for i in range(1 + rank)]
                position += len(head)
                element = context.get_data_type(kind.dtype if rank else kind)
                data = builder.inttoptr(head[0], element.as_pointer())
                values.append(view(context, builder, kind, data, head[1:]) if rank
                              else context.unpack_value(builder, kind, data))
            return context.make_tuple(builder, extra, values)

        return extra(captured), generate

    return unpack


def view(context: Any, builder: ir.IRBuilder, kind: types.Array, data: ir.Value, shape: list[ir.Value]) -> ir.Value:
    """Build Numba's struct of a C-contiguous array whose memory Numba does not own."""
    array = arrayobj.make_array(kind)(context, builder)
    itemsize = context.get_constant(types.intp, context.get_abi_sizeof(context.get_data_type(kind.dtype)))
    strides = [itemsize]
    for size in reversed(shape[1:]):
        strides.insert(0, builder.mul(strides[0], size))
    arrayobj.populate_array(array, data=data, shape=shape, strides=strides, itemsize=itemsize, meminfo=None)
    return array._getvalue()


def lanes(extra: types.BaseTuple) -> Callable:
    """Return an intrinsic that changes the scores of `LANES` consecutive queries with one key."""

    @intrinsic
    def change_lanes(typing_context, change, scores, offset, b, h, query, kv, extra):  # type: ignore[no-untyped-def]
        call = change.get_call_type(typing_context, SCORED + extra.types, {})

        def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
            _, scores, offset, b, h, query, kv, extra_value = arguments
            function = context.get_function(change, call)
            further = cgutils.unpack_tuple(builder, extra_value)
            block = builder.gep(scores, [offset])
            # The results are kept in a separate vector until the loop ends: LLVM must assume that a store to the scores
            # could change an array that the function reads.
            vector = ir.VectorType(ir.FloatType(), LANES)
            results = cgutils.alloca_once(builder, vector)
            result = builder.bitcast(results, ir.FloatType().as_pointer())

            base = builder.and_(query, query.type(INDEX // 2))
            start, body, end = builder.block, builder.append_basic_block("lane"), builder.append_basic_block("done")
            builder.branch(body)
            builder.position_at_end(body)
            lane = builder.phi(query.type)
            lane.add_incoming(query.type(0), start)
            q = builder.and_(builder.add(base, lane), query.type(INDEX))
            score = builder.load(builder.gep(block, [lane]))
            changed = function(builder, (score, b, h, q, kv, *further))
            builder.store(context.cast(builder, changed, call.return_type, types.float32), builder.gep(result, [lane]))
            following = builder.add(lane, query.type(1))
            lane.add_incoming(following, builder.block)
            branch = builder.cbranch(builder.icmp_signed("<", following, query.type(LANES)), body, end)
            branch.set_metadata("llvm.loop", vectorise(builder.module))
            builder.position_at_end(end)
            builder.store(builder.load(results), builder.bitcast(block, vector.as_pointer()), align=4)
            return context.get_dummy_value()

        return types.void(change, scores, offset, b, h, query, kv, extra), generate

    return change_lanes


def vectorise(module: ir.Module) -> ir.MDValue:
    """Return metadata for a loop of `LANES` iterations: vectorise it once, then unroll it completely.

    The metadata sets no vector width, because LLVM would print a remark on each loop that it cannot vectorise.
    """
    unroll = module.add_metadata(["llvm.loop.unroll.enable"])
    hints = [
        module.add_metadata(["llvm.loop.interleave.count", ir.IntType(32)(1)]),
        module.add_metadata(["llvm.loop.unroll.disable"]),
        module.add_metadata(["llvm.loop.vectorize.followup_vectorized", unroll]),
    ]
    loop = ir.MDValue(module, [], name=str(len(module.metadata)))
    loop.operands = (loop, *hints)  # a loop's metadata must name itself first
    return loop


def place(function: FunctionType, line: int | None = None) -> str:
    """Return the function's name, file and line, and the text of the line if its source is available."""
    code = function.__code__
    line = line or code.co_firstlineno
    text = linecache.getline(code.co_filename, line).strip()
    return f"score_mod {function.__name__} ({code.co_filename}, line {line}{f': `{text}`' if text else ''})"


def complaint(function: FunctionType, error: Exception) -> str:
    """Return one line that says where and why a function could not be compiled, from Numba's long message."""
    lines = [line.strip() for line in str(getattr(error, "msg", error)).splitlines()]
    lines = [line for line in lines if line and not line.startswith("Failed in")] or [type(error).__name__]
    calls = [line for line in lines if line.startswith(">>> ")]  # the call without an implementation, in Numba's types
    reason = f"no implementation of {calls[0][4:]}" if calls else lines[0].partition(" Raised from ")[0].rstrip(".")
    location = getattr(error, "loc", None)
    if location is not None and location.filename == function.__code__.co_filename:
        line = location.line
    else:
        named = re.search(r'(?:File ".*", line |Raised from .* \()(\d+)', "\n".join(lines))
        line = int(named[1]) if named else None
    return f"{place(function, line)}: Numba cannot compile it: {reason}"
