"""Test the safetensors reader: memory-mapped, exact, and as strict as the format."""

import json
from mmap import mmap
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.base.errors import WeightsError
from engine.files.safetensors import read_safetensors

from ..tools.damage import LITTLE, mangled, owner, peak_of
from ..tools.tiny_models import safetensors

TENSORS = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.array([-0.0, np.nan, 1e-45], np.float32)}


@pytest.fixture
def write(tmp_path):
    def write(data: bytes):
        (tmp_path / "m.safetensors").write_bytes(data)
        return tmp_path / "m.safetensors"
    return write


def raw(header: Any, data: bytes = b"", length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + data


def entry(dtype: Any = "F32", shape: Any = (3,), offsets: Any = (0, 12)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


def test_a_signalling_nan_of_float64_gives_no_warning(write):
    data = (0x7FF0000000000001).to_bytes(8, "little")
    assert np.isnan(read_safetensors(write(raw({"a": entry("F64", (1,), (0, 8))}, data)))["a"]).all()


def test_float32_is_a_read_only_view_of_one_map(write):
    found = read_safetensors(write(safetensors(TENSORS)))
    assert {name: array.tobytes() for name, array in found.items()} == {k: v.tobytes() for k, v in TENSORS.items()}
    assert found["a"].shape == (2, 3)
    assert isinstance(owner(found["a"]), mmap)
    assert owner(found["a"]) is owner(found["b"])
    assert not found["a"].flags.writeable


def test_an_unaligned_file_is_read(write):
    text = json.dumps({"a": entry()}).encode()
    text += b" " * ((2 - len(text)) % 4)
    found = read_safetensors(write(raw(text, TENSORS["b"].tobytes())))["a"]
    assert found.flags.aligned
    assert found.tobytes() == TENSORS["b"].tobytes()


def test_half_precisions_are_exact(write):
    halves = np.array([1.5, -0.0, 65504, 6e-8, np.inf, np.nan], np.float16)
    brains = np.array([0x3FC0, 0x8000, 0x7F7F, 0x0001, 0x7F80, 0x7FC0], np.uint16)
    found = read_safetensors(write(safetensors({"half": halves, "brain": brains}, brain="BF16")))
    assert (found["half"].dtype, found["brain"].dtype) == (np.float32, np.uint16)
    np.testing.assert_array_equal(found["half"], halves.astype(np.float32))
    np.testing.assert_array_equal(found["brain"], brains)
    assert not found["brain"].flags.writeable


def test_tensors_are_renamed_and_those_without_a_name_not_read(write):
    path = write(safetensors(TENSORS | {"position_ids": np.arange(512)}))
    assert set(read_safetensors(path, {"a": "x", "b": "y", "position_ids": None}.get)) == {"x", "y"}


def test_integers_cannot_be_weights(write):
    with pytest.raises(WeightsError, match="'a' has dtype I64; expected F32, F16, F64, BF16"):
        read_safetensors(write(safetensors({"a": np.arange(3)})))


def test_two_tensors_cannot_have_one_name(write):
    with pytest.raises(WeightsError, match="two tensors are both x, the second is 'b'"):
        read_safetensors(write(safetensors(TENSORS)), lambda _: "x")


HOSTILE = {
    "empty": (b"", "file is empty"),
    "no header": (b"1234567", "too short"),
    "header beyond the file": (raw({}, length=50), "claims 50 bytes"),
    "giant header": (raw({}, length=2**62), "at most 8,000,000 are allowed"),
    "not JSON": (raw(b"{'a': 1}"), "not valid UTF-8 JSON"),
    "not UTF-8": (raw(b'{"\xff": 1}'), "not valid UTF-8 JSON"),
    "space before the brace": (raw(b" {}"), "does not start with '{'"),
    "deep": (raw(b'{"a":' + b"[" * 100_000), "nested too deeply"),
    "huge integer": (raw(b'{"a":' + b"9" * 5000 + b"}"), "not valid UTF-8 JSON"),
    "duplicate name": (raw(b'{"a":{},"a":{}}'), "'a' occurs twice"),
    "duplicate key": (raw(b'{"a":{"dtype":"F32","dtype":"F16"}}'), "'dtype' occurs twice"),
    "metadata not text": (raw({"__metadata__": {"a": 1}}), "__metadata__"),
    "unprintable name": (raw({"\ud800": entry()}, bytes(12)), "not printable"),
    "entry is a list": (raw({"a": []}), "must have dtype"),
    "entry with more": (raw({"a": entry() | {"x": 1}}, bytes(12)), "and nothing else"),
    "entry with less": (raw({"a": {"dtype": "F32"}}), "must have dtype"),
    "unknown dtype": (raw({"a": entry("F128")}, bytes(12)), "unknown dtype 'F128'"),
    "dtype is a list": (raw({"a": entry(["F32"])}, bytes(12)), "unknown dtype"),
    "negative dimension": (raw({"a": entry(shape=[-3])}, bytes(12)), "impossible shape"),
    "fractional dimension": (raw({"a": entry(shape=[3.0])}, bytes(12)), "impossible shape"),
    "boolean dimension": (raw({"a": entry(shape=[True, 3])}, bytes(12)), "impossible shape"),
    "forty dimensions": (raw({"a": entry(shape=[1] * 39 + [3])}, bytes(12)), "impossible shape"),
    "dimensions that overflow": (raw({"a": entry(shape=[2**32, 2**32])}, bytes(12)), "not shape"),
    "empty tensor": (raw({"a": entry(shape=[0, 2**62], offsets=[0, 0])}), "is empty"),
    "size and shape": (raw({"a": entry(shape=[4])}, bytes(12)), "12 bytes, which is not shape"),
    "odd bits": (raw({"a": entry("F4", [3], [0, 1])}, bytes(1)), "not shape"),
    "offsets reversed": (raw({"a": entry(offsets=[12, 0])}, bytes(12)), "impossible data_offsets"),
    "offsets negative": (raw({"a": entry(offsets=[-12, 0])}, bytes(12)), "impossible data_offsets"),
    "three offsets": (raw({"a": entry(offsets=[0, 6, 12])}, bytes(12)), "impossible data_offsets"),
    "beyond the end": (raw({"a": entry()}, bytes(11)), "11 follow the header"),
    "bytes after the end": (raw({"a": entry()}, bytes(13)), "13 follow the header"),
    "overlap": (raw({"a": entry(), "b": entry(offsets=[4, 16])}, bytes(16)), "'b' starts at 4"),
    "same bytes twice": (raw({"a": entry(), "b": entry()}, bytes(12)), "overlap"),
    "hole": (raw({"a": entry(), "b": entry(offsets=[16, 28])}, bytes(28)), "hole"),
    "hole at the start": (raw({"a": entry(offsets=[4, 16])}, bytes(16)), "hole"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_file(write, case):
    data, words = HOSTILE[case]
    path = write(data)
    with pytest.raises(WeightsError) as error:
        read_safetensors(path)
    assert str(error.value).startswith(str(path))
    assert words in str(error.value)
    assert "copy the file again" in str(error.value)
    assert peak_of(read_safetensors, path) < LITTLE


def test_cut_anywhere(write):
    data = safetensors(TENSORS)
    for length in range(len(data)):
        path = write(data[:length])
        with pytest.raises(WeightsError):
            read_safetensors(path)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_mangled_files_raise_nothing_else_and_allocate_little(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "m.safetensors"
    path.write_bytes(data.draw(mangled(safetensors(TENSORS)), "file"))
    assert peak_of(read_safetensors, path) < LITTLE


# Shards
