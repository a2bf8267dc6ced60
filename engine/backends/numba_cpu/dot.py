"""Dot products of 8-bit integers in LLVM's terms, as dot.h has them: codes from 0 to 255, weights from -127 to 127.

An operand is DOT steps of depth for each of VL lanes, as its instructions want it: in one vector, in two, where it lies
in memory or, where there is no such instruction, in one vector for each step.
"""

from __future__ import annotations

from llvmlite import binding, ir

from .emit import I32, VF, VI, call, splat
from .pointers import BYTE, SIZE, store
from .target import DOT, INTEGERS, VL

Operand = list[ir.Value]

NO_SUM = ir.Constant(VI, [0] * VL)
MAGIC = ir.Constant(VF, [12582912.0] * VL)

# Four products a sum in 16 bits, as dot.h explains. Assembly, as LLVM would load weights once and have no register
# left; said to write memory, so that the codes of a row are not loaded before the row above is done with its own.
FOUR_AT_A_TIME = f"""
    vpmaddubsw ($6), $4, $1
    vpmaddubsw {4 * VL}($6), $5, $2
    vpaddw $2, $1, $1
    vpmaddwd $7, $1, $1
    vpaddd $1, $0, $0
"""
CONSTRAINTS = "=v,=&v,=&v,0,v,v,r,v,~{memory}"
ONES = ir.Constant(VI, [0x00010001] * VL)

binding.initialize_native_asmparser()


def as_codes(b: ir.IRBuilder, bits: ir.Value) -> Operand:
    """The operand whose codes, in each lane, are the bytes of `bits`; all DOT of them where these are four."""
    if INTEGERS == "lanes":
        return [b.and_(b.lshr(bits, _all(8 * i)), _all(255)) for i in range(DOT)]
    return [bits] * (DOT // 4)


def load_codes(b: ir.IRBuilder, pointer: ir.Value) -> Operand:
    """The DOT codes from pointer on, in every lane."""
    places = [b.gep(pointer, [SIZE(i)], source_etype=BYTE) for i in range(0, DOT, 4)]
    fours = [splat(b, b.load(place, typ=I32, align=1)) for place in places]
    return fours if INTEGERS == "vpmaddubsw" else as_codes(b, fours[0])


def load_weights(b: ir.IRBuilder, pointer: ir.Value) -> Operand:
    """VL*DOT weights, int8, from pointer on."""
    if INTEGERS == "vpmaddubsw":
        return [pointer]
    bits = b.load(pointer, typ=VI, align=1)
    if INTEGERS == "vpdpbusd":
        return [bits]
    return [b.ashr(b.shl(bits, _all(24 - 8 * i)), _all(24)) for i in range(DOT)]


def dot(b: ir.IRBuilder, codes: Operand, weights: Operand, total: ir.Value) -> ir.Value:
    """total + the sum of DOT products, in each lane."""
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
    """VL codes, the nearest integers to x, which is from 0 to 255: adding 1.5*2^23 leaves them in the lowest bits."""
    narrow = ir.VectorType(BYTE, VL)
    store(b, pointer, b.trunc(b.bitcast(b.fadd(x, MAGIC), VI), narrow), 1)


def _all(x: int) -> ir.Constant:
    return ir.Constant(VI, [x] * VL)
