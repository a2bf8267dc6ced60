"""CTranslate2's model.bin: files of its own package, files of every version, damaged and hostile files.

tests/golden/make/ctranslate2.py made the golden files.
"""

import struct
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from engine.base.errors import WeightsError
from engine.files.ctranslate2 import CTranslate2File
from engine.weights.bfloat16 import to_bfloat16

from ..tools.ctranslate2_files import ctranslate2, variable
from ..tools.paths import CTRANSLATE2
from ..tools.whisper import FOLDER, MISSING

GOLDEN = CTRANSLATE2
ROWS = np.arange(12, dtype=np.float32).reshape(3, 4) - 5


def written(folder: Path, data: bytes) -> CTranslate2File:
    path = folder / "model.bin"
    path.unlink(missing_ok=True)
    path.write_bytes(data)
    return CTranslate2File(path)


@pytest.mark.parametrize(("kind", "limit"), [("float32", 0), ("float16", 2**-11), ("int16", 2**-11), ("int8", 1 / 254)])
def test_files_of_the_package(kind, limit):
    """limit: half a step of the type, as a part of the largest number of a matrix."""
    exact = CTranslate2File(GOLDEN / "float32.bin").read()
    file = CTranslate2File(GOLDEN / f"{kind}.bin")
    found = file.read()
    assert (file.specification, file.revision) == ("TransformerSpec", 7)
    assert file.settings["encoder/num_heads"] == 2
    assert file.settings["decoder/pre_norm"] == 1
    assert found.keys() == exact.keys()
    assert found["decoder/projection/weight"] is found["encoder/embeddings_0/weight"]
    worst = max(float(np.abs(found[key] - exact[key]).max() / np.abs(exact[key]).max()) for key in exact)
    assert worst == 0 if limit == 0 else limit / 2 < worst <= 1.00001 * limit
    rng = np.random.default_rng(0)
    np.testing.assert_array_equal(exact["encoder/embeddings_0/weight"], rng.standard_normal((11, 8)).astype(np.float32))


@pytest.mark.parametrize("version", range(2, 7))
def test_versions(tmp_path, version):
    half = np.float32(0.5)
    arrays: dict[str, np.ndarray] = {"a/weight": ROWS, "b": np.array(7, np.int8), "c": np.float32(1.5),
                                     "d/weight": np.array([[100, -50]], np.int8), "d/weight_scale": half.reshape(1)}
    aliases = {"e": "a/weight", "f": "d/weight"} if version >= 3 else {}
    file = written(tmp_path, ctranslate2(arrays, aliases, version=version))
    assert file.settings == {"b": 7, "c": 1.5}
    assert file.specification == "Spec"
    found = file.read()
    assert list(found) == ["a/weight", "d/weight", *aliases]
    np.testing.assert_array_equal(found["a/weight"], ROWS, strict=True)
    np.testing.assert_array_equal(found["d/weight"], np.array([[200, -100]], np.float32), strict=True)
    if aliases:
        assert found["e"] is found["a/weight"]
        assert found["f"] is found["d/weight"]


@pytest.mark.parametrize("memory", ["map", "copy"])
def test_types(tmp_path, memory):
    data = ctranslate2({"float32": ROWS, "float16": ROWS.astype(np.float16), "int32": ROWS.astype(np.int32)},
                       raw={"bfloat16": variable("bfloat16", to_bfloat16(ROWS), 5)})
    file = CTranslate2File(written(tmp_path, data).path, memory)
    found = file.read(keep_float16=True)
    assert {key: array.dtype.str for key, array in found.items()} == {
        "float32": "<f4", "float16": "<f2", "int32": "<i4", "bfloat16": "<u2"}
    np.testing.assert_array_equal(found["bfloat16"], to_bfloat16(ROWS))
    assert not any(array.flags.writeable for array in found.values())
    np.testing.assert_array_equal(file.read({"float16": "x"}.get)["x"], ROWS, strict=True)


def test_rows_of_a_convolution_have_one_scale_each(tmp_path):
    integers = np.arange(-12, 12, dtype=np.int8).reshape(2, 4, 3)
    scale = np.array([2, 4], np.float32)
    found = written(tmp_path, ctranslate2({"w": integers, "w_scale": scale})).read()
    np.testing.assert_array_equal(found["w"], integers / scale[:, None, None])
    assert list(found) == ["w"]


def test_int16(tmp_path):
    integers = np.array([[1000, -500], [3, 0]], np.int16)
    plain = written(tmp_path, ctranslate2({"w": integers})).read()["w"]
    np.testing.assert_allclose(plain, integers / 1000, rtol=2e-7)
    scaled = written(tmp_path, ctranslate2({"w": integers, "w_scale": np.float32(4)})).read()["w"]
    np.testing.assert_array_equal(scaled, integers.astype(np.float32) / 4, strict=True)


def test_two_arrays_with_one_new_name(tmp_path):
    with pytest.raises(WeightsError, match="two arrays are both x, the second is 'b'"):
        written(tmp_path, ctranslate2({"a": ROWS, "b": ROWS})).read(lambda name: "x")


@pytest.mark.parametrize(("scale", "words"), [
    (None, "needs w_scale"), (np.ones(2, np.float32), "needs w_scale"), (np.ones(3, np.float16), "needs w_scale"),
    (np.zeros(3, np.float32), "not above 0"), (-np.ones(3, np.float32), "not above 0"),
    (np.full(1, np.nan, np.float32), "not above 0"), (np.full(3, np.inf, np.float32), "not above 0"),
])  # fmt: skip
def test_bad_scales(tmp_path, scale, words):
    arrays: Mapping[str, np.ndarray] = {"w": np.ones((3, 4), np.int8)} | ({} if scale is None else {"w_scale": scale})
    file = written(tmp_path, ctranslate2(arrays))
    with pytest.raises(WeightsError, match=words):
        file.read()


WHOLE = ctranslate2({"ab": ROWS, "c": np.ones(3, np.int8)}, {"d": "ab"})
BAD: dict[str, tuple[bytes, str]] = {
    "version 1": (struct.pack("<I", 1) + WHOLE[4:], "version 1 of CTranslate2's format; expected 2 to 6"),
    "version 7": (struct.pack("<I", 7) + WHOLE[4:], "version 7"),
    "another format": (b"PK\3\4" + WHOLE[4:], "version 67,?324,?752"),
    "a name without NUL": (WHOLE.replace(b"\3\0ab\0", b"\3\0abx"), "not printable ASCII with a NUL"),
    "a name without a text": (ctranslate2({}, spec=""), "not printable ASCII"),
    "a name that is not ASCII": (WHOLE.replace(b"ab\0", b"a\xff\0"), "not printable ASCII"),
    "a name of no bytes": (WHOLE[:4] + bytes(2) + WHOLE[6:], "not printable ASCII"),
    "many variables": (WHOLE[:15] + b"\xff" * 4 + WHOLE[19:], "claims 4,294,967,295 variables"),
    "many dimensions": (WHOLE.replace(b"ab\0\2", b"ab\0\x09", 1), "has 9 dimensions; at most 8"),
    "an unknown type": (ctranslate2({}, raw={"x": variable("x", ROWS, 6)}), "unknown type; expected float32, int8"),
    "another size": (ctranslate2({}, raw={"x": variable("x", ROWS, 5)}), "48 bytes, which is not shape .* of bfloat16"),
    "an empty array": (ctranslate2({"x": ROWS[:0]}), r"not shape \[0, 4\] of float32"),
    "a name twice": (ctranslate2({"x": ROWS}, raw={"y": variable("x", ROWS, 0)}), "two variables are called 'x'"),
    "an alias of nothing": (ctranslate2({"x": ROWS}, {"y": "z"}), "alias 'y' of 'z' stands for no variable"),
    "an alias of an alias": (ctranslate2({"x": ROWS}, {"y": "x", "z": "y"}), "alias 'z' of 'y'"),
    "an alias in the place of a variable": (ctranslate2({"x": ROWS, "y": ROWS}, {"x": "y"}), "its name is taken"),
    "bytes after the end": (WHOLE + b"\0", "1 bytes follow its last alias"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_files(tmp_path, case):
    data, words = BAD[case]
    with pytest.raises(WeightsError, match=words):
        written(tmp_path, data)


def test_every_cut_is_refused(tmp_path):
    for size in range(1, len(WHOLE)):
        with pytest.raises(WeightsError):
            written(tmp_path, WHOLE[:size])


def test_a_tiny_scale_gives_numbers_that_a_later_check_reports(tmp_path):
    found = written(tmp_path, ctranslate2({"w": np.array([[1, 0]], np.int8), "w_scale": np.float32(1e-45)})).read()["w"]
    assert not np.isfinite(found).any()


def test_many_aliases_share_one_array(tmp_path):
    file = written(tmp_path, ctranslate2({"w": np.ones((999, 99), np.int8), "w_scale": np.float32(1)},
                                         {f"a{i}": "w" for i in range(5000)}))
    assert len({id(array) for array in file.read().values()}) == 1


@pytest.mark.skipif(not FOLDER.exists(), reason=MISSING)
def test_a_real_file():
    file = CTranslate2File(FOLDER / "model.bin")
    assert (file.specification, file.revision) == ("WhisperSpec", 3)
    assert file.settings["decoder/num_heads"] == 6
    found = file.read()
    assert len(found) == 140
    assert found["encoder/conv1/weight"].shape == (384, 80, 3)
    assert found["decoder/projection/weight"] is found["decoder/embeddings/weight"]
    # The encoder's positions are sinusoids, in float16.
    frequency = np.exp(-np.log(10000) / 191 * np.arange(192))
    angles = np.arange(1500)[:, None] * frequency
    sinusoids = np.hstack([np.sin(angles), np.cos(angles)])
    np.testing.assert_allclose(found["encoder/position_encodings/encodings"], sinusoids, atol=1e-3)
