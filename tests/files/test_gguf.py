"""GGUF files: the numbers of llama.cpp's own package, damaged and hostile files.

tests/golden/make/gguf.py made the golden files. Files that these tests write come from tests/tools/gguf_files.py.
"""

import struct
from pathlib import Path

import numpy as np
import pytest

from engine.base.errors import WeightsError
from engine.files.gguf import GgufFile
from engine.files.gguf_blocks import TYPES, dequantize
from engine.weights.bfloat16 import from_bfloat16, to_bfloat16

from ..tools.gguf_files import Blocks, gguf, setting, text
from ..tools.limited import outcome
from ..tools.paths import FILES
from ..tools.smollm2 import FILE as SMOLLM2
from ..tools.smollm2 import MISSING

SUMS = (-15353.04449415207, 49.83570861816406)
"""Sums in float64 of the word table and of the last matrix of SmolLM2, as the package gguf converts them."""
ROWS = np.arange(12, dtype=np.float32).reshape(3, 4)


def written(folder: Path, data: bytes) -> Path:
    path = folder / "m.gguf"
    path.unlink(missing_ok=True)
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("name", [kind.name for kind in TYPES.values() if kind.dequantize])
def test_blocks_give_the_numbers_of_llama_cpp(name):
    with np.load(FILES / "gguf.npz") as golden:
        blocks, numbers = golden[f"{name}.blocks"], golden[f"{name}.numbers"]
    kind = next(kind for kind in TYPES.values() if kind.name == name)
    found = dequantize(kind, blocks.ravel(), numbers.shape)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, numbers)
    # More blocks than are converted at once give the same numbers.
    many = 2**18 // numbers.size + 2
    np.testing.assert_array_equal(dequantize(kind, np.tile(blocks.ravel(), many), (many, *numbers.shape))[-1], numbers)


def test_a_file_of_the_package_gguf():
    file = GgufFile(FILES / "small.gguf")
    settings = {key: value for key, value in file.settings.items() if key.startswith("t.")}
    lists = {key: settings.pop(key).tolist() for key in ("t.numbers", "t.floats", "t.flags")}
    assert file.settings["general.architecture"] == "llama"
    assert settings == {
        "t.u8": 200, "t.i8": -100, "t.u16": 60000, "t.i16": -30000, "t.u32": 4000000000, "t.i32": -2000000000,
        "t.u64": 2**63, "t.i64": -(2**62), "t.f32": 0.5, "t.f64": 0.1, "t.bool": True, "t.text": "Größe 北京",
        "t.texts": ["a", "", "ü"]}  # fmt: skip
    assert lists == {"t.numbers": [1, -2, 3], "t.floats": [0.5, -1.5], "t.flags": [True, False]}
    assert settings["t.bool"] is True
    arrays = file.read(keep_float16=True)
    exact = arrays["F32"]
    assert {name: (array.shape, array.dtype.str) for name, array in arrays.items()} == {
        "vector": ((5,), "<f4"), "F32": ((3, 64), "<f4"), "F16": ((3, 64), "<f2"), "BF16": ((3, 64), "<u2"),
        "Q8_0": ((3, 64), "<f4"), "Q4_0": ((3, 64), "<f4"), "Q4_1": ((3, 64), "<f4"), "three": ((2, 3, 4), "<f2")}
    np.testing.assert_array_equal(arrays["vector"], exact[0, :5])
    for name, limit in {"F16": 1e-3, "BF16": 1e-2, "Q8_0": 0.02, "Q4_0": 0.3, "Q4_1": 0.2}.items():
        near = from_bfloat16(arrays[name]) if name == "BF16" else arrays[name].astype(np.float32)
        assert 0 < np.abs(near - exact).max() < limit
    assert file.types["Q4_1"] == "Q4_1"


@pytest.mark.parametrize("memory", ["map", "copy"])
@pytest.mark.parametrize("version", [2, 3])
def test_plain_tensors_are_views(tmp_path, version, memory):
    tensors = {"a": ROWS, "b": ROWS.astype(np.float16), "c": to_bfloat16(ROWS)}
    file = GgufFile(written(tmp_path, gguf({}, tensors, version=version)), memory)
    arrays = file.read(keep_float16=True)
    for name, array in tensors.items():
        np.testing.assert_array_equal(arrays[name], array, strict=True)
        assert not arrays[name].flags.owndata
        assert not arrays[name].flags.writeable
    wide = file.read({"b": "x"}.get)
    assert list(wide) == ["x"]
    np.testing.assert_array_equal(wide["x"], ROWS, strict=True)


@pytest.mark.parametrize("alignment", [1, 8, 64, 4096])
def test_alignments(tmp_path, alignment):
    blocks = np.random.default_rng(0).integers(0, 60, 34 * 3, dtype=np.uint8).tobytes()
    tensors = {"a": Blocks(8, (3, 32), blocks), "b": ROWS}
    data = gguf({"general.alignment": alignment}, tensors, alignment=alignment)
    arrays = GgufFile(written(tmp_path, data)).read()
    np.testing.assert_array_equal(arrays["b"], ROWS)
    assert arrays["a"].shape == (3, 32)


def test_the_last_tensor_needs_no_padding(tmp_path):
    data = gguf({}, {"a": ROWS[0, :3].copy()})
    np.testing.assert_array_equal(GgufFile(written(tmp_path, data[:-20])).read()["a"], ROWS[0, :3])


def test_a_file_without_tensors(tmp_path):
    data = gguf({"a": 3}, {})
    for one in (data, data.rstrip(b"\0") + bytes(3)):
        assert GgufFile(written(tmp_path, one)).read() == {}


def test_two_tensors_with_one_new_name(tmp_path):
    file = GgufFile(written(tmp_path, gguf({}, {"a": ROWS, "b": ROWS})))
    with pytest.raises(WeightsError, match="two tensors are both x, the second is 'b'"):
        file.read(lambda name: "x")


@pytest.mark.parametrize(("number", "numbers", "nbytes", "name"), [
    (10, 256, 84, "Q2_K"), (40, 64, 36, "NVFP4"), (41, 128, 18, "Q1_0")])
def test_types_without_a_conversion_are_refused_only_when_they_are_read(tmp_path, number, numbers, nbytes, name):
    path = written(tmp_path, gguf({}, {"a": Blocks(number, (numbers,), bytes(nbytes)), "b": ROWS}))
    assert list(GgufFile(path).read({"b": "b"}.get)) == ["b"]
    with pytest.raises(WeightsError, match=rf"^{path}: tensor 'a' has type {name}; expected F32, F16, .*, Q4_K, Q5_K, "
                                           r"Q6_K\. llama\.cpp's llama-quantize --allow-requantize writes the model in "
                                           r"one of them$"):
        GgufFile(path).read()


def changed(data: bytes, at: bytes, before: int, new: bytes) -> bytes:
    """Return the data with `new` in the place of the bytes that start `before` bytes after the end of `at`."""
    start = data.index(at) + len(at) + before
    return data[:start] + new + data[start + len(new):]


WHOLE = gguf({"k": 3, "general.alignment": 32}, {"tensor": ROWS, "other": ROWS})
HUGE = struct.pack("<Q", 2**63)
BAD: dict[str, tuple[bytes, str]] = {
    "another format": (b"PK\3\4" + WHOLE[4:], "does not start with GGUF but with b'PK"),
    "version 1": (changed(WHOLE, b"GGUF", 0, struct.pack("<I", 1)), "version 1 of GGUF; expected 2 or 3"),
    "big-endian": (changed(WHOLE, b"GGUF", 0, struct.pack(">I", 3)), "big-endian machine"),
    "only the magic": (b"GGUF", "cut short"),
    "many tensors": (changed(WHOLE, b"GGUF", 4, HUGE), "claims 9,223,372,036,854,775,808 tensors"),
    "many settings": (changed(WHOLE, b"GGUF", 12, HUGE), "tensors and 9,223,372,036,854,775,808 settings"),
    "a long key": (changed(WHOLE, b"GGUF", 20, HUGE), "text of 9,223,372,036,854,775,808 bytes; at most 1,000"),
    "a long text": (gguf({"k": struct.pack("<I", 8) + HUGE}, {}), "at most 8,000,000 are allowed"),
    "a text beyond the end": (gguf({"k": struct.pack("<IQ", 8, 5000)}, {}), "cut short"),
    "a key that is not UTF-8": (WHOLE.replace(b"\1\0\0\0\0\0\0\0k", b"\1\0\0\0\0\0\0\0\xff"), "not UTF-8"),
    "a key that is not printable": (WHOLE.replace(b"\1\0\0\0\0\0\0\0k", b"\1\0\0\0\0\0\0\0\7"), "not printable"),
    "a key without a text": (gguf({"": 3}, {}), "'' is empty"),
    "a key twice": (b"GGUF" + struct.pack("<IQQ", 3, 0, 2) + (text("k") + setting(1)) * 2, "'k' occurs twice"),
    "an unknown type of a setting": (gguf({"k": struct.pack("<IQ", 13, 0)}, {}), "has the type 13"),
    "a list in a list": (gguf({"k": struct.pack("<IIQ", 9, 9, 1) + bytes(12)}, {}), "has the type 9"),
    "a long list": (gguf({"k": struct.pack("<II", 9, 4) + HUGE}, {}), "cut short"),
    "a long list of texts": (gguf({"k": struct.pack("<II", 9, 8) + HUGE}, {}), "more than 1,000,000 texts"),
    "a Boolean of 2": (gguf({"k": struct.pack("<IB", 7, 2)}, {}), "a Boolean has the value 2"),
    "alignment 0": (gguf({"general.alignment": 0}, {}), "power of two .* not 0"),
    "alignment 24": (gguf({"general.alignment": 24}, {}), "power of two .* not 24"),
    "alignment of a text": (gguf({"general.alignment": "a"}, {}), "power of two .* not 'a'"),
    "a huge alignment": (gguf({"general.alignment": 2**31}, {}), "power of two of at most 65,536"),
    "a part of a model": (gguf({"split.count": 3}, {}), "one of 3 files .* -00001-of-00003.gguf .*-split --merge"),
    "a number of parts": (gguf({"split.count": 70000}, {}), "split.count, .* at most 1,000, not 70000"),
    "a list of parts": (gguf({"split.count": np.ones(2)}, {}), "split.count, .* at most 1,000"),
    "no dimensions": (changed(WHOLE, b"tensor", 0, struct.pack("<I", 0)), "has 0 dimensions; expected 1 to 4"),
    "many dimensions": (changed(WHOLE, b"tensor", 0, b"\xff" * 4), "has 4,294,967,295 dimensions"),
    "an empty tensor": (changed(WHOLE, b"tensor", 4, bytes(8)), r"impossible shape \[3, 0\]"),
    "a huge tensor": (changed(WHOLE, b"tensor", 4, HUGE), "impossible shape"),
    "rows of part of a block": (gguf({}, {"a": Blocks(8, (3, 48), bytes(170))}), "has blocks of 32"),
    "an unknown type": (changed(WHOLE, b"tensor", 20, struct.pack("<I", 99)), "'tensor' has the unknown type 99"),
    "another place": (changed(WHOLE, b"tensor", 24, struct.pack("<Q", 32)), "starts at 32 of the data; expected 0"),
    "an overlap": (changed(WHOLE, b"other", 24, bytes(8)), "starts at 0 of the data; expected 64"),
    "a name twice": (WHOLE.replace(b"\5\0\0\0\0\0\0\0other", b"\6\0\0\0\0\0\0\0tensor"), "are called 'tensor'"),
    "cut in the data": (WHOLE[:-32], "take 112 bytes, but 96 follow"),
    "bytes after the end": (WHOLE + b"\0", "but 129 follow"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_files(tmp_path, case):
    data, words = BAD[case]
    path = written(tmp_path, data)
    with pytest.raises(WeightsError, match=words) as caught:
        GgufFile(path)
    assert str(caught.value).startswith(str(path))


def test_every_cut_is_refused(tmp_path):
    for size in range(1, len(WHOLE) - 16):
        with pytest.raises(WeightsError):
            GgufFile(written(tmp_path, WHOLE[:size]))


def test_a_file_of_texts_needs_bounded_memory(tmp_path):
    path = written(tmp_path, gguf({}, {})[:16] + struct.pack("<Q", 1) + text("k")
                   + struct.pack("<IIQ", 9, 8, 1_000_000) + b"\2\0\0\0\0\0\0\0ab" * 1_000_000)  # fmt: skip
    assert "ok" in outcome(lambda: len(GgufFile(path).settings["k"]), memory=300_000_000)


def parts(folder: Path, *, tensors: int = 3, **changes: dict[str, object]) -> list[Path]:
    """Write a model in three files, whose second has no tensor; changes: of the settings of file "first" and so on."""
    held = ({"a": ROWS, "b": 2 * ROWS}, {}, {"c": ROWS[:1].copy()})
    paths = [folder / f"m-0000{i + 1}-of-00003.gguf" for i in range(3)]
    for i, (path, name, own) in enumerate(zip(paths, ("first", "second", "third"), held, strict=True)):
        settings = {"split.no": i, "split.count": 3, "split.tensors.count": tensors} | ({"k": 5} if not i else {})
        path.write_bytes(gguf(settings | changes.get(name, {}), own))
    return paths


@pytest.mark.parametrize("opened", range(3))
def test_a_model_in_several_files(tmp_path, opened):
    file = GgufFile(parts(tmp_path)[opened])
    assert file.settings["k"] == 5
    assert file.shapes == {"a": (3, 4), "b": (3, 4), "c": (1, 4)}
    assert file.types == dict.fromkeys("abc", "F32")
    arrays = file.read()
    for name, expected in (("a", ROWS), ("b", 2 * ROWS), ("c", ROWS[:1])):
        np.testing.assert_array_equal(arrays[name], expected)


@pytest.mark.parametrize(("changes", "words"), [
    ({"second": {"split.no": 2}}, "the files 2 of 3 state another place"),
    ({"third": {"split.count": 4}}, "the files 3 of 3 state another place"),
    ({"tensors": 4}, "have 3 tensors together, and the first one states 4"),
])
def test_parts_that_do_not_fit(tmp_path, changes, words):
    path = parts(tmp_path, **changes)[0]
    with pytest.raises(WeightsError, match=words) as caught:
        GgufFile(path)
    assert str(caught.value).startswith(str(path))


def test_a_part_that_is_not_there(tmp_path):
    first, second, third = parts(tmp_path)
    second.unlink()
    with pytest.raises(WeightsError, match=r"m-00002-of-00003\.gguf: cannot be read: No such file"):
        GgufFile(first)
    third.rename(tmp_path / "m-00003-of-00004.gguf")
    with pytest.raises(WeightsError, match="one of 3 files of a model, whose names must end with -00001-of-00003"):
        GgufFile(tmp_path / "m-00003-of-00004.gguf")
    second.write_bytes(gguf({"split.no": 1, "split.count": 3}, {"a": ROWS}))
    third.write_bytes(gguf({"split.no": 2, "split.count": 3}, {}))
    with pytest.raises(WeightsError, match="two of its files have a tensor of the same name"):
        GgufFile(first)


@pytest.mark.skipif(not SMOLLM2.exists(), reason=MISSING)
def test_a_real_file():
    file = GgufFile(SMOLLM2)
    assert file.settings["general.architecture"] == "llama"
    assert len(file.settings["tokenizer.ggml.tokens"]) == 49152
    assert {kind: list(file.types.values()).count(kind) for kind in ("Q4_1", "Q8_0", "F32")} == {
        "Q4_1": 210, "Q8_0": 1, "F32": 61}
    arrays = file.read()
    assert sum(array.size for array in arrays.values()) == 134_515_008
    assert arrays["token_embd.weight"].shape == (49152, 576)
    assert arrays["token_embd.weight"].sum(dtype=float) == pytest.approx(SUMS[0], rel=1e-12)
    assert arrays["blk.29.ffn_down.weight"].sum(dtype=float) == pytest.approx(SUMS[1], rel=1e-12)
