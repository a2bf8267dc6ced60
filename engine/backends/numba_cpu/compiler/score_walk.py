"""Compile a score function with Numba into a loop over a block of scores, inlined and vectorised.

The loop is a C function `ScoreMod` (table.pxd). A row of a block is short, 8 to 64 scores, and LLVM's
vectoriser compiles a loop over it badly: if it knows the number of iterations it unrolls the loop before it vectorises
it, and if not it prepares for many more iterations than there are. Therefore this module emits the loop over `LANES`
queries itself, with metadata that guides the vectoriser.
"""

from __future__ import annotations

import linecache
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce
from types import CellType, FunctionType
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core import ir as numba_ir
from numba.core.dispatcher import Dispatcher
from numba.extending import intrinsic
from numba.np import arrayobj

from ....base.errors import InputError, UnsupportedError
from ...global_names import global_names
from ...ops_interface import A_SCORE

LANES = 16
"""Iterations of the inner loop: the smallest number for which LLVM's vectoriser applies all its optimisations."""

INDEX = 2**28 - 1
"""Mask of every index, so that LLVM knows two facts.

No subscript is negative, and a sum or difference of a few indices fits int32, which AVX2 can convert to floats; it
cannot convert int64. Sequences are shorter than half of it.
"""

SCORED = (types.float32, types.intp, types.intp, types.intp, types.intp)    # score, b, h, q_index, kv_index
SCORE_MOD = types.void(types.CPointer(types.float32), *[types.intp] * 7, types.voidptr)     # the arguments of `walk`
OPTIONS = {"error_model": "numpy", "forceinline": True}     # a division by zero gives inf, and raises nothing


def compile_walk(function: FunctionType, arguments: Sequence[tuple[np.dtype, int]]) -> Any:
    """Compile the loop that applies a function, and return it as a `numba.core.ccallback.CFunc`.

    The CFunc must be kept for as long as its `address` is in use. `arguments` are the dtypes and ranks of the
    function's arguments after (score, b, h, q_index, kv_index); rank 0 is a scalar. The C function's `captured` points
    to int64 words: 0, then for each of these arguments its address and its shape. If the function fails, by a subscript
    outside its array or by an exception, its result is NaN, and the first word becomes 1. Raises `UnsupportedError` if
    Numba cannot compile the function, and `InputError` if its result is not a real number.
    """
    extra = types.Tuple([argument_type(dtype, rank) for dtype, rank in arguments])
    change = compile_with_checks(function, OPTIONS, {})
    try:
        change.compile(SCORED + extra.types)
    except Exception as error:  # the compiler raises many types of exceptions for an unsupported function
        raise UnsupportedError(f"{explain_error(function, error)}; backend='reference' runs any function") from None
    result = change.overloads[SCORED + extra.types].signature.return_type
    if returns_bool(change.overloads[SCORED + extra.types].type_annotation):
        result = types.boolean
    if not isinstance(types.unliteral(result), types.Number) or result in types.complex_domain:
        raise InputError(f"{locate(function)}: expected a number as the result in every case, got {result}; {A_SCORE}")

    unpack, change_lanes, change_lane = make_unpacker(extra), make_changer(extra, LANES), make_changer(extra, 1)

    def walk(scores, stride, b, h, query, n, key, keys, captured):  # type: ignore[no-untyped-def]
        # scores[keys][n] with rows `stride` floats apart, of queries from `query` on and keys from `key` on
        extra = unpack(captured)
        b, h = b & INDEX, h & INDEX
        end_of_loops = n // LANES * LANES
        for j in range(keys):
            kv = (key + j) & INDEX
            row = j * stride
            for i in range(0, end_of_loops, LANES):
                change_lanes(change, scores, row + i, b, h, query + i, kv, extra, captured)
            for i in range(end_of_loops, n):
                change_lane(change, scores, row + i, b, h, query + i, kv, extra, captured)

    compiled = numba.cfunc(SCORE_MOD, **OPTIONS)(walk)
    if re.search(r"call .*@(numba_gil_ensure|NRT_)", compiled.inspect_llvm()):
        raise UnsupportedError(f"{locate(function)}: it may print or allocate, which a kernel cannot do; compute with "
                               "numbers alone")
    return compiled


def returns_bool(annotation: Any) -> bool:
    """Return whether a compiled function returns a bool in a case, which Numba turns into the number of other cases.

    It follows each returned variable back through copies, casts and merged branches to the values that it can have.
    """
    values: dict[str, list[Any]] = {}
    returned, seen = [], set()
    for block in annotation.blocks.values():
        for statement in block.body:
            if isinstance(statement, numba_ir.Assign):
                values.setdefault(statement.target.name, []).append(statement.value)
            elif isinstance(statement, numba_ir.Return):
                returned.append(statement.value)
    while returned:
        variable = returned.pop()
        if not isinstance(variable, numba_ir.Var) or variable.name in seen:
            continue
        seen.add(variable.name)
        if isinstance(types.unliteral(annotation.typemap.get(variable.name)), types.Boolean):
            return True
        for value in values.get(variable.name, ()):
            if isinstance(value, numba_ir.Var):
                returned.append(value)
            elif isinstance(value, numba_ir.Expr) and value.op in ("cast", "phi"):
                returned += [value.value] if value.op == "cast" else value.incoming_values
    return False


def argument_type(dtype: np.dtype, rank: int) -> types.Type:
    """Return Numba's type of an argument: a scalar, or a read-only C-contiguous array."""
    element = numba.from_dtype(dtype)
    return types.Array(element, rank, "C", readonly=True) if rank else element


def make_unpacker(extra: types.BaseTuple) -> Callable:
    """Return an intrinsic that builds the tuple of a function's further arguments from `captured`."""

    @intrinsic
    def unpack(typing_context, captured):  # type: ignore[no-untyped-def]
        def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
            words = builder.bitcast(arguments[0], context.get_value_type(types.intp).as_pointer())
            values, position = [], 1  # after the word for failures
            for kind in extra.types:
                rank = getattr(kind, "ndim", 0)
                pointers = [builder.gep(words, [ir.IntType(64)(position + i)]) for i in range(1 + rank)]
                address, *shape = [builder.load(pointer) for pointer in pointers]
                position += len(pointers)
                element = context.get_data_type(kind.dtype if rank else kind)
                data = builder.inttoptr(address, element.as_pointer())
                values.append(build_array(context, builder, kind, data, shape) if rank
                              else context.unpack_value(builder, kind, data))
            return context.make_tuple(builder, extra, values)

        return extra(captured), generate

    return unpack


def build_array(context: Any, builder: ir.IRBuilder, kind: types.Array, data: ir.Value,
                shape: list[ir.Value]) -> ir.Value:
    """Build Numba's struct of a C-contiguous array whose memory Numba does not own."""
    array = arrayobj.make_array(kind)(context, builder)
    itemsize = context.get_constant(types.intp, context.get_abi_sizeof(context.get_data_type(kind.dtype)))
    strides = [itemsize]
    for size in reversed(shape[1:]):
        strides.insert(0, builder.mul(strides[0], size))
    arrayobj.populate_array(array, data=data, shape=shape, strides=strides, itemsize=itemsize, meminfo=None)
    return array._getvalue()


def make_changer(extra: types.BaseTuple, count: int) -> Callable:
    """Return an intrinsic that changes the scores of `count` consecutive queries with one key."""

    @intrinsic
    def change_lanes(  # type: ignore[no-untyped-def]
        typing_context, change, scores, offset, b, h, query, kv, extra, captured
    ):
        call = change.get_call_type(typing_context, SCORED + extra.types, {})

        def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
            _, scores, offset, b, h, query, kv, extra_value, captured = arguments
            compiled = change.dispatcher.overloads[call.args]
            context.active_code_library.add_linking_library(compiled.library)
            further = cgutils.unpack_tuple(builder, extra_value)
            block = builder.gep(scores, [offset])
            # The results are kept in a separate vector until the loop ends: LLVM must assume that a store to the scores
            # could change an array that the function reads.
            vector = ir.VectorType(ir.FloatType(), count)
            results = cgutils.alloca_once(builder, vector)
            failures = cgutils.alloca_once(builder, ir.ArrayType(ir.IntType(32), count))
            result = builder.bitcast(results, ir.FloatType().as_pointer())

            base = builder.and_(query, query.type(INDEX // 2))      # leaves room to add a lane
            with emit_loop(builder, count) as lane:
                q = builder.and_(builder.add(base, lane), query.type(INDEX))
                score = builder.load(builder.gep(block, [lane]))
                # We record a failure instead of returning, so the loop has no early exit and LLVM can vectorise it.
                status, changed = context.call_internal_no_propagate(
                    builder, compiled.fndesc, call, (score, b, h, q, kv, *further))
                changed = context.cast(builder, changed, call.return_type, types.float32)
                changed = builder.select(status.is_error, changed.type(math.nan), changed)
                builder.store(changed, builder.gep(result, [lane]))
                failed = builder.zext(status.is_error, ir.IntType(32))
                builder.store(failed, builder.gep(failures, [lane.type(0), lane]))
            builder.store(builder.load(results), builder.bitcast(block, vector.as_pointer()), align=4)
            note_failure(builder, failures, count, captured)
            return context.get_dummy_value()

        return types.void(change, scores, offset, b, h, query, kv, extra, captured), generate

    return change_lanes


@contextmanager
def emit_loop(builder: ir.IRBuilder, count: int) -> Iterator[ir.Value]:
    """Emit a loop from 0 to count - 1 that LLVM vectorises; the block of the `with` statement emits its body."""
    zero = ir.IntType(64)(0)
    start, body, end = builder.block, builder.append_basic_block("lane"), builder.append_basic_block("done")
    builder.branch(body)
    builder.position_at_end(body)
    lane = builder.phi(zero.type)
    lane.add_incoming(zero, start)
    yield lane
    following = builder.add(lane, zero.type(1))
    lane.add_incoming(following, builder.block)
    branch = builder.cbranch(builder.icmp_signed("<", following, zero.type(count)), body, end)
    branch.set_metadata("llvm.loop", vectorise(builder.module))
    builder.position_at_end(end)


def note_failure(builder: ir.IRBuilder, failures: ir.Value, count: int, captured: ir.Value) -> None:
    """Set the first word of `captured` if a lane has failed; threads that do it together write the same."""
    word = ir.IntType(64)
    flags = [builder.load(builder.gep(failures, [word(0), word(lane)])) for lane in range(count)]
    failed = reduce(builder.or_, flags)
    with builder.if_then(builder.icmp_signed("!=", failed, failed.type(0)), likely=False):
        builder.store(word(1), builder.bitcast(captured, word.as_pointer()))


def compile_with_checks(function: FunctionType, options: Mapping[str, Any], known: dict[FunctionType, Any]) -> Any:
    """Return a function compiled by numba.njit with checks of all subscripts, also in the functions that it calls.

    options: of numba.njit. known: compiled forms by function, to which this one is added, for functions that call each
    other.
    """
    def with_checks(value: Any) -> Any:
        if not isinstance(value, Dispatcher):
            return value
        options = {name: option for name, option in value.targetoptions.items()
                   if name not in ("nopython", "boundscheck")}
        return known.get(value.py_func) or compile_with_checks(value.py_func, options, known)

    namespace, cells = dict(function.__globals__), [CellType() for _ in function.__closure__ or ()]
    copy = FunctionType(function.__code__, namespace, function.__name__, function.__defaults__, tuple(cells) or None)
    known[function] = compiled = numba.njit(copy, boundscheck=True, **options)
    for name in global_names(function.__code__) & namespace.keys():
        namespace[name] = with_checks(namespace[name])
    for cell, original in zip(cells, function.__closure__ or (), strict=True):
        cell.cell_contents = with_checks(original.cell_contents)
    return compiled


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


def locate(function: FunctionType, line: int | None = None) -> str:
    """Return the function's name, file and line, and the text of the line if its source is available."""
    code = function.__code__
    line = line or code.co_firstlineno
    text = linecache.getline(code.co_filename, line).strip()
    return f"score_mod {function.__name__} ({code.co_filename}, line {line}{f': `{text}`' if text else ''})"


def explain_error(function: FunctionType, error: Exception) -> str:
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
    return f"{locate(function, line)}: Numba cannot compile it: {reason}"
