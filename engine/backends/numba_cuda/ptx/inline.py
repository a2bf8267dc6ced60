"""Make functions that kernels call from PTX: from one statement, or from a sequence of statements over registers.

The compiler unrolls loops over local arrays only up to a limit, beyond which the arrays are moved to memory without a
warning. Therefore statements are unrolled here, in Python, while code is generated; the emulator runs them on 32 lanes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

import numpy as np

from ..toolchain import PtxFunction, ir, types
from .emulated import WARP, current

u16, i32, u32, i64, f32 = types.uint16, types.int32, types.uint32, types.int64, types.float32

_LETTERS = {u16: "h", i32: "r", u32: "r", i64: "l", f32: "f"}
_NUMPY = {u16: np.uint16, i32: np.int32, u32: np.uint32, i64: np.int64, f32: np.float32}


@cache
def _llvm(kind: Any) -> Any:
    """Return the LLVM type of a kernel's scalar type."""
    return ir.FloatType() if kind is f32 else ir.IntType(kind.numpy.itemsize * 8)


@dataclass(frozen=True)
class Statement:
    """A PTX asm statement: $0, $1 ... are the outputs, then the inputs."""

    text: str
    outputs: tuple[Any, ...]
    inputs: tuple[Any, ...]
    lanes: Callable[..., Any]
    """Its effect on a warp: maps arrays [32], one per input, to a tuple of arrays [32] (one array for one output)."""
    memory: bool = False
    """True if it reads or writes memory or synchronises, so that the compiler must not move it."""

    def emit(self, builder: ir.IRBuilder, values: Sequence[Any]) -> list[Any]:
        """Append the statement to a function under construction and return its outputs."""
        outputs = [_llvm(kind) for kind in self.outputs]
        result = ir.VoidType() if not outputs else outputs[0] if len(outputs) == 1 else ir.LiteralStructType(outputs)
        constraints = [f"={_LETTERS[kind]}" for kind in self.outputs] + [_LETTERS[kind] for kind in self.inputs]
        asm = ir.InlineAsm(ir.FunctionType(result, [_llvm(kind) for kind in self.inputs]), self.text,
                           ",".join(constraints + ["~{memory}"] * self.memory), side_effect=self.memory)
        value = builder.call(asm, values, attrs=("convergent",))  # all lanes of a warp must reach it together
        return [value] if len(outputs) == 1 else [builder.extract_value(value, i) for i in range(len(outputs))]

    def __call__(self, *values: np.ndarray) -> list[np.ndarray]:
        """Run the statement in the emulator, on arrays [32], and return its outputs as a list."""
        result = self.lanes(*values)
        return list(result) if isinstance(result, tuple) else [] if result is None else [result]


@dataclass(frozen=True)
class Registers:
    """An argument that is a `cuda.local.array` of `count` elements, of any shape, read and written in place."""

    count: int
    kind: Any = f32


class PtxWriter(Protocol):
    """The interface that writes a sequence of statements: `writer(statement, *values)` returns its outputs."""

    def __call__(self, statement: Statement, *values: Any) -> list[Any]: ...

    def constant(self, kind: Any, value: float) -> Any:
        """Return the same value in every lane."""

    def add(self, value: Any, other: Any) -> Any:
        """Return value + other, where value is a u32 and other a u32 or a number."""

    def xor(self, value: Any, other: Any) -> Any:
        """Return value ^ other, where value is a u32 and other a u32 or a number."""


class _Compiler:
    """The `PtxWriter` that emits LLVM code."""

    def __init__(self, builder: ir.IRBuilder) -> None:
        self.builder = builder

    def __call__(self, statement: Statement, *values: Any) -> list[Any]:
        return statement.emit(self.builder, values)

    def constant(self, kind: Any, value: float) -> Any:
        return ir.Constant(_llvm(kind), value)

    def add(self, value: Any, other: Any) -> Any:
        return self.builder.add(value, self._value(other))

    def xor(self, value: Any, other: Any) -> Any:
        return self.builder.xor(value, self._value(other))

    def _value(self, number: Any) -> Any:
        return ir.Constant(_llvm(u32), number) if isinstance(number, int) else number


class _Emulator:
    """The `PtxWriter` that computes immediately, on arrays [32], a number for each lane of a warp."""

    def __call__(self, statement: Statement, *values: Any) -> list[Any]:
        return statement(*values)

    def constant(self, kind: Any, value: float) -> Any:
        return np.full(WARP, value, _NUMPY[kind])

    def add(self, value: Any, other: Any) -> Any:
        return value + np.asarray(other, np.uint32)

    def xor(self, value: Any, other: Any) -> Any:
        return value ^ np.asarray(other, np.uint32)


def function(statement: Statement, alone: bool = False) -> Any:
    """Return a function for kernels whose inputs are scalars and whose output is nothing, a scalar or a tuple.

    alone: True if a lane does not depend on other lanes. The emulator then runs it for a part of the warp, too, and
    with numbers instead of arrays [32] if all lanes have the same.
    """
    tuple_type = types.UniTuple(statement.outputs[0], len(statement.outputs)) if len(statement.outputs) > 1 else None

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        outputs = statement.emit(builder, values)
        if tuple_type:
            return context.make_tuple(builder, signature.return_type, outputs)
        return outputs[0] if outputs else context.get_dummy_value()

    def python(*values: Any) -> Any:
        typed: list[Any] = [_NUMPY[kind](value) for kind, value in zip(statement.inputs, values, strict=True)]
        outputs = statement(*typed) if alone else current().together(statement, typed)
        return tuple(outputs) if tuple_type else outputs[0] if outputs else None

    result = tuple_type or (statement.outputs[0] if statement.outputs else types.void)
    return make(result, statement.inputs, generate, python)


def straight(body: Callable[..., None], *arguments: Any) -> Any:
    """Return a function for kernels that runs `body(writer, *operands)` unrolled.

    The arguments are scalar types or `Registers`. An operand for `Registers` is a list of values that the body may
    replace; one for a scalar is a value.
    """
    kinds: list[Any] = [types.Array if isinstance(argument, Registers) else argument for argument in arguments]

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        operands: list[Any] = []
        stores: list[tuple[list[Any], list[Any]]] = []
        for argument, kind, value in zip(arguments, signature.args, values, strict=True):
            if not isinstance(argument, Registers):
                operands.append(value)
                continue
            data = context.make_array(kind)(context, builder, value=value).data
            places = [builder.gep(data, [ir.Constant(ir.IntType(64), i)]) for i in range(argument.count)]
            operands.append([builder.load(place) for place in places])
            stores.append((places, operands[-1]))
        body(_Compiler(builder), *operands)
        for places, registers in stores:
            for place, register in zip(places, registers, strict=True):
                builder.store(register, place)
        return context.get_dummy_value()

    def python(*values: Any) -> None:
        current().together(run, [value if isinstance(argument, Registers) else _NUMPY[argument](value)
                               for argument, value in zip(arguments, values, strict=True)])

    def run(*values: Any) -> None:
        """Run the body on a warp's arrays [32], and on a local array as a list of them, which the body may replace."""
        operands = [value.registers() if isinstance(argument, Registers) else value
                    for argument, value in zip(arguments, values, strict=True)]
        body(_Emulator(), *operands)
        for argument, value, operand in zip(arguments, values, operands, strict=True):
            if isinstance(argument, Registers):
                value.replace(operand)

    return make(types.void, kinds, generate, python)


def make(result: Any, arguments: Sequence[Any], generate: Callable[..., Any], python: Callable[..., Any]) -> Any:
    """Return a function for kernels; Numba emits it with `generate`, and the emulator runs `python`.

    An argument of type `types.Array` accepts any array.
    """
    return PtxFunction(result, arguments, generate, python)
