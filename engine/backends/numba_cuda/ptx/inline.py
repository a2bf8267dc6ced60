"""How PTX becomes functions that kernels call: one statement, or a straight run of statements over registers.

Loops over local arrays are unrolled by the compiler up to a size only, beyond which the arrays silently move to memory.
A run of statements is therefore unrolled here, in Python, while code is generated; the emulator runs it on 32 lanes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from inspect import Parameter, Signature
from typing import Any, Protocol

import numpy as np

from ..toolchain import intrinsic, ir, types
from . import emulate

u16, i32, u32, i64, f32 = types.uint16, types.int32, types.uint32, types.int64, types.float32

_LETTERS = {u16: "h", i32: "r", u32: "r", i64: "l", f32: "f"}
_LLVM = {u16: ir.IntType(16), i32: ir.IntType(32), u32: ir.IntType(32), i64: ir.IntType(64), f32: ir.FloatType()}
_NUMPY = {u16: np.uint16, i32: np.int32, u32: np.uint32, i64: np.int64, f32: np.float32}


@dataclass(frozen=True)
class Statement:
    """An asm statement of PTX: $0, $1 ... are the outputs, then the inputs."""

    text: str
    outputs: tuple[Any, ...]
    inputs: tuple[Any, ...]
    lanes: Callable[..., Any]
    """What it does to a warp: arrays [32], one for each input, to a tuple of arrays [32] (one array if one output)."""
    memory: bool = False
    """Whether it reads or writes memory or synchronises, so that it must stay where it is."""

    def emit(self, builder: ir.IRBuilder, values: Sequence[Any]) -> list[Any]:
        """Append it to a function under construction; its outputs."""
        outputs = [_LLVM[kind] for kind in self.outputs]
        result = ir.VoidType() if not outputs else outputs[0] if len(outputs) == 1 else ir.LiteralStructType(outputs)
        constraints = [f"={_LETTERS[kind]}" for kind in self.outputs] + [_LETTERS[kind] for kind in self.inputs]
        asm = ir.InlineAsm(ir.FunctionType(result, [_LLVM[kind] for kind in self.inputs]), self.text,
                           ",".join(constraints + ["~{memory}"] * self.memory), side_effect=self.memory)
        value = builder.call(asm, values, attrs=("convergent",))  # no lane may be parted from its warp before it
        return [value] if len(outputs) == 1 else [builder.extract_value(value, i) for i in range(len(outputs))]

    def __call__(self, *values: np.ndarray) -> list[np.ndarray]:
        """Run it on a warp's values."""
        result = self.lanes(*values)
        return list(result) if isinstance(result, tuple) else [] if result is None else [result]


@dataclass(frozen=True)
class Registers:
    """An argument that is a `cuda.local.array` of so many elements, of any shape, read and written in place."""

    count: int
    kind: Any = f32


class Writer(Protocol):
    """What a straight run is written with: `writer(statement, *values)` gives the statement's outputs."""

    def __call__(self, statement: Statement, *values: Any) -> list[Any]: ...

    def constant(self, kind: Any, value: float) -> Any:
        """The same value in every lane."""

    def add(self, value: Any, other: Any) -> Any:
        """value + other, of a u32 and another or a number."""

    def xor(self, value: Any, other: Any) -> Any:
        """value ^ other, likewise."""


class _Compiler:
    """A Writer of LLVM."""

    def __init__(self, builder: ir.IRBuilder) -> None:
        self.builder = builder

    def __call__(self, statement: Statement, *values: Any) -> list[Any]:
        return statement.emit(self.builder, values)

    def constant(self, kind: Any, value: float) -> Any:
        return ir.Constant(_LLVM[kind], value)

    def add(self, value: Any, other: Any) -> Any:
        return self.builder.add(value, self._value(other))

    def xor(self, value: Any, other: Any) -> Any:
        return self.builder.xor(value, self._value(other))

    def _value(self, number: Any) -> Any:
        return ir.Constant(_LLVM[u32], number) if isinstance(number, int) else number


class _Emulator:
    """A Writer that computes at once, on arrays [32]."""

    def __call__(self, statement: Statement, *values: Any) -> list[Any]:
        return statement(*values)

    def constant(self, kind: Any, value: float) -> Any:
        return np.full(32, value, _NUMPY[kind])

    def add(self, value: Any, other: Any) -> Any:
        return value + np.asarray(other, np.uint32)

    def xor(self, value: Any, other: Any) -> Any:
        return value ^ np.asarray(other, np.uint32)


def function(statement: Statement, alone: bool = False) -> Any:
    """A function for kernels: the inputs as scalars to nothing, a scalar or a tuple.

    With `alone` a lane needs no other: the emulator then runs it without waiting for the warp.
    """
    several = types.UniTuple(statement.outputs[0], len(statement.outputs)) if len(statement.outputs) > 1 else None

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        outputs = statement.emit(builder, values)
        if several:
            return context.make_tuple(builder, several, outputs)
        return outputs[0] if outputs else context.get_dummy_value()

    def python(*values: Any) -> Any:
        typed: list[Any] = [_NUMPY[kind](value) for kind, value in zip(statement.inputs, values, strict=True)]
        outputs: Any = statement(*typed) if alone else emulate.together(statement, typed)
        return tuple(outputs) if several else outputs[0] if outputs else None

    return make(several or (statement.outputs or (types.void,))[0], statement.inputs, generate, python)


def straight(body: Callable[..., None], *arguments: Any) -> Any:
    """A function for kernels made of `body(writer, *operands)`, unrolled; arguments are scalar types or `Registers`.

    An operand for `Registers` is a list of values that the body may replace; one for a scalar is a value.
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
        emulate.together(run, [value if isinstance(argument, Registers) else _NUMPY[argument](value)
                               for argument, value in zip(arguments, values, strict=True)])

    def run(*columns: Any) -> list[Any]:
        """The body on the operands of 32 lanes."""
        operands = [list(np.stack([array.ravel() for array in column], axis=1)) if isinstance(argument, Registers)
                    else column for argument, column in zip(arguments, columns, strict=True)]
        body(_Emulator(), *operands)
        for argument, column, operand in zip(arguments, columns, operands, strict=True):
            if isinstance(argument, Registers):
                for lane, array in enumerate(column):
                    array.reshape(-1)[:] = [register[lane] for register in operand]
        return []

    return make(types.void, kinds, generate, python)


def make(result: Any, arguments: Sequence[Any], generate: Callable[..., Any], python: Callable[..., Any]) -> Any:
    """A function for kernels: `generate` emits it as numba's code generators do, `python` is what the emulator runs.

    An argument of type `types.Array` takes any array.
    """

    def typing(context: Any, *given: Any) -> Any:
        return result(*(actual if kind is types.Array else kind
                        for kind, actual in zip(arguments, given, strict=True))), generate

    names = ["context", *(f"a{i}" for i in range(len(arguments)))]
    parameters = [Parameter(name, Parameter.POSITIONAL_OR_KEYWORD) for name in names]
    typing.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    made = intrinsic(typing)
    made.in_python = python
    return made
