"""Generate dot products of 8-bit integers as LLVM code, as simd/ does in C: codes 0 to 255, weights -127 to 127.

An operand is DOT steps of depth for each of VL lanes. Its form depends on the instruction, INTEGERS: for "vpdpbusd" one
vector (DOT = 4), for "vpmaddubsw" two vectors of codes and a pointer to weights (DOT = 8); on a CPU without such an
instruction ("lanes"), one vector for each step. LLVM values: b is a builder, pointers are bytes.
"""

from __future__ import annotations

from llvmlite import binding, ir

from ..compiler.emit import I32, VF, VI, call, splat
from ..compiler.pointers import BYTE, SIZE, store
from ..target import DOT, INTEGERS, VL
from .elementwise import ROUNDER
from .integer_pairs import every

Operand = list[ir.Value]

# Adds four products at a time in int16, which simd/x86.h explains. It is assembly, because LLVM would load the weights
# once and run out of registers. It is declared to write memory, so that LLVM does not load the codes of a row before
# the products of the previous row are done.
FOUR_AT_A_TIME = f"""
    vpmaddubsw ($6), $4, $1
    vpmaddubsw {4 * VL}($6), $5, $2
    vpaddw $2, $1, $1
    vpmaddwd $7, $1, $1
    vpaddd $1, $0, $0
"""
CONSTRAINTS = "=v,=&v,=&v,0,v,v,r,v,~{memory}"      # of $0 to $7: sum, two products, sum, two codes, weights, ones
ONES = every(0x00010001)        # in both int16 of each lane

binding.initialize_native_asmparser()


def load_codes(b: ir.IRBuilder, pointer: ir.Value) -> Operand:
    """Broadcast the DOT codes from `pointer` on to every lane."""
    places = [b.gep(pointer, [SIZE(i)], source_etype=BYTE) for i in range(0, DOT, 4)]
    fours = [splat(b, b.load(place, typ=I32, align=1)) for place in places]
    if INTEGERS == "lanes":
        return [b.and_(b.lshr(fours[0], every(8 * i)), every(255)) for i in range(DOT)]
    return fours


def load_weights(b: ir.IRBuilder, pointer: ir.Value) -> Operand:
    """Load VL*DOT int8 weights [DOT/4][VL][4]; FOUR_AT_A_TIME reads them itself, so there they are the pointer."""
    if INTEGERS == "vpmaddubsw":
        return [pointer]
    bits = b.load(pointer, typ=VI, align=1)
    if INTEGERS == "vpdpbusd":
        return [bits]
    return [b.ashr(b.shl(bits, every(24 - 8 * i)), every(24)) for i in range(DOT)]


def dot(b: ir.IRBuilder, codes: Operand, weights: Operand, total: ir.Value) -> ir.Value:
    """Return total + the sum of DOT products, in each lane."""
    if INTEGERS == "vpmaddubsw":
        kinds = [VI, VI, VI, weights[0].type, VI]
        function = ir.FunctionType(ir.LiteralStructType([VI, VI, VI]), kinds)
        results = b.asm(function, FOUR_AT_A_TIME, CONSTRAINTS, [total, *codes, *weights, ONES], True)
        return b.extract_value(results, 0)
    if INTEGERS == "vpdpbusd":
        return call(b, f"llvm.x86.avx512.vpdpbusd.{32 * VL}", VI, total, *codes, *weights)
    for x, w in zip(codes, weights, strict=True):
        total = b.add(total, b.mul(x, w))
    return total


def store_codes(b: ir.IRBuilder, pointer: ir.Value, x: ir.Value) -> None:
    """Round VL floats from 0 to 255 to the nearest codes and store them."""
    store(b, pointer, b.trunc(nearest(b, x), ir.VectorType(BYTE, VL)), align=1)


def nearest(b: ir.IRBuilder, x: ir.Value) -> ir.Value:
    """Return VL int32 whose lowest 16 bits are those of the integers nearest to small floats."""
    return b.bitcast(b.fadd(x, ir.Constant(VF, [ROUNDER] * VL)), VI)
