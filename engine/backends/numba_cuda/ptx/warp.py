"""Provide arithmetic that Numba does not compile to one instruction, bfloat16 conversions, and warp shuffles."""

from __future__ import annotations

import numpy as np

from .emulated import current
from .inline import Statement, f32, function, i32, u16, u32


def bits_of_bf16(x: np.ndarray) -> np.ndarray:
    """Round float32 to bfloat16, half to even, and return the bits in the lower 16 of uint32; NaN becomes 0x7FFF."""
    bits = np.asarray(x, np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    return np.where(np.isnan(x), np.uint32(0x7FFF), rounded).astype(np.uint32)


def bf16_of_bits(bits: np.ndarray) -> np.ndarray:
    """Return the float32 whose bfloat16 bits are the lower 16 of uint32."""
    return (np.asarray(bits, np.uint32) << np.uint32(16)).view(np.float32)


EXP2 = Statement("ex2.approx.ftz.f32 $0, $1;", (f32,), (f32,), lambda x: np.exp2(np.float32(x)))
RECIPROCAL = Statement("rcp.approx.ftz.f32 $0, $1;", (f32,), (f32,), lambda x: np.float32(1) / x)
ADD = Statement("add.rn.f32 $0, $1, $2;", (f32,), (f32, f32), np.add)
SUBTRACT = Statement("sub.rn.f32 $0, $1, $2;", (f32,), (f32, f32), np.subtract)
MULTIPLY = Statement("mul.rn.f32 $0, $1, $2;", (f32,), (f32, f32), np.multiply)
FMA = Statement("fma.rn.f32 $0, $1, $2, $3;", (f32,), (f32, f32, f32),
                lambda a, b, c: (np.float64(a) * np.float64(b) + c).astype(np.float32))
MAXIMUM = Statement("max.f32 $0, $1, $2;", (f32,), (f32, f32), np.fmax)
MINIMUM = Statement("min.f32 $0, $1, $2;", (f32,), (f32, f32), np.fmin)
KEEP_BELOW = Statement("{ .reg .pred p; setp.lt.u32 p, $2, $3; selp.f32 $0, $1, 0fFF800000, p; }",
                       (f32,), (f32, u32, u32),         # 0fFF800000 is -inf
                       lambda x, number, count: np.where(number < count, x, np.float32(-np.inf)))
PACK = Statement("cvt.rn.bf16x2.f32 $0, $2, $1;", (u32,), (f32, f32),
                 lambda low, high: bits_of_bf16(low) | bits_of_bf16(high) << np.uint32(16))
ROUND = Statement("cvt.rn.bf16.f32 $0, $1;", (u16,), (f32,), lambda x: bits_of_bf16(x).astype(np.uint16))
WIDEN = Statement("{ .reg .b16 z; mov.b16 z, 0; mov.b32 $0, {z, $1}; }", (f32,), (u16,), bf16_of_bits)
SHUFFLE_XOR = Statement("shfl.sync.bfly.b32 $0, $1, $2, 0x1f, 0xffffffff;", (f32,), (f32, i32),
                        lambda x, mask: x[np.arange(32) ^ mask], memory=True)
SHUFFLE_BITS = Statement("shfl.sync.bfly.b32 $0, $1, $2, 0x1f, 0xffffffff;", (u32,), (u32, i32),
                         lambda x, mask: x[np.arange(32) ^ mask], memory=True)
SELECT = Statement("{ .reg .pred p; setp.ne.u32 p, $1, 0; selp.b32 $0, $2, $3, p; }", (u32,), (u32, u32, u32),
                   lambda choice, x, y: np.where(choice != 0, x, y))
SYNC_WARP = Statement("bar.warp.sync 0xffffffff;", (), (), lambda: current().show_writes(), memory=True)

exp2 = function(EXP2, alone=True)
"""Return 2^x of a float32: 2 ulp (PTX ISA, ex2.approx); -inf gives 0."""
reciprocal = function(RECIPROCAL, alone=True)
"""Return 1/x of a float32: 1 ulp."""
maximum = function(MAXIMUM, alone=True)
"""Return the larger of two float32, or the other if one is NaN."""
pack_bf16 = function(PACK, alone=True)
"""Round two float32 to bfloat16 and pack them in a uint32, the first in the lower half."""
round_bf16 = function(ROUND, alone=True)
"""Round a float32 to bfloat16, half to even, and return the bits as uint16."""
widen_bf16 = function(WIDEN, alone=True)
"""Return the float32 of the bits of a bfloat16, uint16."""
shuffle_xor = function(SHUFFLE_XOR)
"""Return x of lane (this ^ mask), float32."""
sync_warp = function(SYNC_WARP)
"""Wait for all lanes of the warp; each then sees the writes of the others to memory."""
