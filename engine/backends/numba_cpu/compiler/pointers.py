"""Define C pointers for Numba functions: `p + n`, `p[i]`, `p[i] = x`, truth, and the fields of a struct, `p.name`
and `p.name = x`.

They point to numbers, to other pointers, or to a struct. For each operation, a class tells Numba the types, and a
function emits the code: `sig` has the types of its arguments, `args` their LLVM values.
"""

from __future__ import annotations

import operator
from typing import Any, NamedTuple

from llvmlite import ir
from numba import types
from numba.core.cgutils import alloca_once
from numba.core.typing.templates import AbstractTemplate, AttributeTemplate, infer_getattr, infer_global, signature
from numba.extending import (
    intrinsic,
    lower_builtin,
    lower_getattr_generic,
    lower_setattr_generic,
    models,
    register_model,
)

BYTE, SIZE = ir.IntType(8), ir.IntType(64)
POINTER = BYTE.as_pointer()
"""The LLVM type of every pointer: LLVM's pointers have no element type."""


class Field(NamedTuple):
    """A field of a C struct: its Numba type, and its offset in bytes."""

    kind: types.Type
    offset: int


class Struct(types.Type):
    """The layout of a C struct: its fields by name."""

    def __init__(self, name: str, fields: dict[str, Field]):
        self.fields = fields
        super().__init__(name)


class Pointer(types.Type):
    """A pointer to a Numba number type, to a `Pointer` or to a `Struct`."""

    def __init__(self, to: types.Type):
        self.to = to
        super().__init__(f"{to.name}*")


@register_model(Pointer)
class _PointerModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Pointer):
        super().__init__(manager, kind, POINTER)


def store(builder: ir.IRBuilder, pointer: ir.Value, value: ir.Value, align: int | None = None) -> None:
    """Emit *pointer = value."""
    builder.store(value, builder.bitcast(pointer, value.type.as_pointer()), align=align)


def element(context: Any, builder: ir.IRBuilder, kind: Pointer, pointer: ir.Value, index: ir.Value) -> ir.Value:
    """Return &pointer[index]."""
    return builder.gep(pointer, [index], source_etype=context.get_data_type(kind.to))


@infer_global(operator.add)
@infer_global(operator.iadd)
class _Add(AbstractTemplate):
    """The types of p + n and p += n."""

    def generic(self, args: Any, kws: Any) -> Any:
        if len(args) == 2 and isinstance(args[0], Pointer) and isinstance(args[1], types.Integer):
            return signature(args[0], args[0], types.intp)
        return None


@lower_builtin(operator.add, Pointer, types.intp)
@lower_builtin(operator.iadd, Pointer, types.intp)
def _add(context: Any, builder: ir.IRBuilder, sig: Any, args: Any) -> ir.Value:
    """Emit p + n, for p += n too."""
    return element(context, builder, sig.args[0], *args)


@infer_global(operator.getitem)
class _GetItem(AbstractTemplate):
    """The types of p[i]."""

    def generic(self, args: Any, kws: Any) -> Any:
        if isinstance(args[0], Pointer) and isinstance(args[1], types.Integer):
            return signature(args[0].to, args[0], types.intp)
        return None


@lower_builtin(operator.getitem, Pointer, types.intp)
def _get_item(context: Any, builder: ir.IRBuilder, sig: Any, args: Any) -> ir.Value:
    """Emit the load of p[i]."""
    return builder.load(element(context, builder, sig.args[0], *args), typ=context.get_data_type(sig.args[0].to))


@infer_global(operator.setitem)
class _SetItem(AbstractTemplate):
    """The types of p[i] = x."""

    def generic(self, args: Any, kws: Any) -> Any:
        if isinstance(args[0], Pointer) and isinstance(args[1], types.Integer):
            return signature(types.none, args[0], types.intp, args[0].to)
        return None


@lower_builtin(operator.setitem, Pointer, types.intp, types.Number)
@lower_builtin(operator.setitem, Pointer, types.intp, Pointer)
def _set_item(context: Any, builder: ir.IRBuilder, sig: Any, args: Any) -> ir.Value:
    """Emit p[i] = x."""
    pointer, index, value = args
    store(builder, element(context, builder, sig.args[0], pointer, index), value)
    return context.get_dummy_value()


@infer_global(bool)
class _Truth(AbstractTemplate):
    """The types of bool(p)."""

    def generic(self, args: Any, kws: Any) -> Any:
        return signature(types.boolean, *args) if isinstance(args[0], Pointer) else None


@lower_builtin(bool, Pointer)
def _is_set(context: Any, builder: ir.IRBuilder, sig: Any, args: Any) -> ir.Value:
    """Emit bool(p): whether the pointer is not null."""
    return builder.icmp_unsigned("!=", args[0], ir.Constant(POINTER, None))


@infer_getattr
class _Fields(AttributeTemplate):
    """The types of p.name."""

    key = Pointer

    def generic_resolve(self, kind: Pointer, name: str) -> Any:
        return kind.to.fields[name].kind if isinstance(kind.to, Struct) and name in kind.to.fields else None


@lower_getattr_generic(Pointer)
def _field(context: Any, builder: ir.IRBuilder, kind: Pointer, pointer: ir.Value, name: str) -> ir.Value:
    """Emit the load of p.name, at its offset in the struct."""
    field = kind.to.fields[name]
    address = builder.gep(pointer, [SIZE(field.offset)], source_etype=BYTE)
    return builder.load(address, typ=context.get_value_type(field.kind))


@lower_setattr_generic(Pointer)
def _set_field(context: Any, builder: ir.IRBuilder, sig: Any, args: Any, name: str) -> None:
    """Emit p.name = x."""
    pointer, value = args
    address = builder.gep(pointer, [SIZE(sig.args[0].to.fields[name].offset)], source_etype=BYTE)
    store(builder, address, value)


@intrinsic
def null(typing: Any) -> Any:
    """Return a null pointer to floats."""
    return Pointer(types.float32)(), lambda context, builder, sig, args: ir.Constant(POINTER, None)


def on_stack(kind: types.Type, n: int) -> Any:
    """Return an intrinsic that allocates n numbers or pointers on the stack."""

    @intrinsic
    def allocate(typing: Any) -> Any:
        def build(context: Any, builder: ir.IRBuilder, sig: Any, args: Any) -> ir.Value:
            return builder.bitcast(alloca_once(builder, context.get_data_type(kind), n), POINTER)

        return Pointer(kind)(), build

    return allocate


def cast_to(kind: types.Type) -> Any:
    """Return an intrinsic that converts a pointer to a pointer to this type."""
    return intrinsic(lambda typing, p: (Pointer(kind)(p), lambda context, builder, sig, args: args[0]))


as_bytes, as_integers8, as_bits, as_floats = map(cast_to, (types.uint8, types.int8, types.uint16, types.float32))
