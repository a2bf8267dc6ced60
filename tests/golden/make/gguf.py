"""Make the golden files of GGUF with the package `gguf` of llama.cpp (pip install gguf==0.19.0).

    python -m tests.golden.make.gguf

gguf.npz holds random blocks of each type, as TYPE.blocks, and the numbers that `gguf.quants.dequantize` gives, as
TYPE.numbers. small.gguf is a file that `gguf.GGUFWriter` wrote: settings of every type, and a tensor of each type that
the package can write.
"""


import gguf
import numpy as np

from tests.tools.paths import FILES

BLOCKS = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K"]


def blocks_of(rng: np.random.Generator, kind: gguf.GGMLQuantizationType, count: int) -> np.ndarray:
    """Return random blocks whose numbers are all finite."""
    _, nbytes = gguf.GGML_QUANT_SIZES[kind]
    found = np.zeros((0, nbytes), np.uint8)
    while len(found) < count:
        blocks = rng.integers(0, 256, (count, nbytes), dtype=np.uint8)
        with np.errstate(all="ignore"):
            finite = np.isfinite(gguf.quants.dequantize(blocks, kind)).all(1)
        found = np.concatenate([found, blocks[finite]])
    return found[:count]


def main() -> None:
    """Write both files."""
    rng = np.random.default_rng(0)
    arrays = {}
    for name in BLOCKS:
        kind = gguf.GGMLQuantizationType[name]
        blocks = blocks_of(rng, kind, 12)
        arrays |= {f"{name}.blocks": blocks, f"{name}.numbers": gguf.quants.dequantize(blocks, kind)}
    np.savez_compressed(FILES / "gguf.npz", **arrays)
    writer = gguf.GGUFWriter(FILES / "small.gguf", "llama")
    writer.add_uint8("t.u8", 200)
    writer.add_int8("t.i8", -100)
    writer.add_uint16("t.u16", 60000)
    writer.add_int16("t.i16", -30000)
    writer.add_uint32("t.u32", 4000000000)
    writer.add_int32("t.i32", -2000000000)
    writer.add_uint64("t.u64", 2**63)
    writer.add_int64("t.i64", -(2**62))
    writer.add_float32("t.f32", 0.5)
    writer.add_float64("t.f64", 0.1)
    writer.add_bool("t.bool", True)
    writer.add_string("t.text", "Größe 北京")
    writer.add_array("t.texts", ["a", "", "ü"])
    writer.add_array("t.numbers", [1, -2, 3])
    writer.add_array("t.floats", [0.5, -1.5])
    writer.add_array("t.flags", [True, False])
    numbers = rng.standard_normal((3, 64)).astype(np.float32)
    writer.add_tensor("vector", numbers[0, :5].copy())
    for name in ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1"):
        kind = gguf.GGMLQuantizationType[name]
        writer.add_tensor(name, gguf.quants.quantize(numbers, kind), raw_dtype=kind)
    writer.add_tensor("three", rng.standard_normal((2, 3, 4)).astype(np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
