"""Columns of Arrow: no copy, nulls, slices, and what is refused."""

import numpy as np
import pytest

pa = pytest.importorskip("pyarrow")

import pyarrow.compute as pc

from engine.adapters import arrow
from engine.base.errors import InputError

VECTORS = np.arange(12, dtype=np.float32).reshape(4, 3)


def encode(texts):
    return VECTORS[[int(text) for text in texts]]


def test_the_numbers_are_not_copied():
    column = arrow.encode_column(lambda texts: VECTORS, pa.array(["0", "1", "2", "3"]))
    assert column.type == pa.list_(pa.float32(), 3)
    assert column.values.buffers()[1].address == VECTORS.ctypes.data


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view()])
def test_nulls_and_slices(kind, monkeypatch):
    monkeypatch.setattr(arrow, "SLICE_ROWS", 2)
    texts = pa.chunked_array([pa.array(["3", None, "0"], kind), pa.array([None, "2"], kind)])
    assert arrow.encode_column(encode, texts).to_pylist() == [[9, 10, 11], None, [0, 1, 2], None, [6, 7, 8]]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_dictionaries_and_runs(kind, monkeypatch):
    monkeypatch.setattr(arrow, "SLICE_ROWS", 2)
    plain = [pa.array(["3", None, "0", "0", "0"], kind), pa.array([None, "2"], kind)]
    expected = [[9, 10, 11], None, *[[0, 1, 2]] * 3, None, [6, 7, 8]]
    for convert in (lambda column: column.dictionary_encode(), pc.run_end_encode,
                    lambda column: pa.DictionaryArray.from_arrays([*range(len(column))], column)):
        texts = pa.chunked_array([convert(column) for column in plain])
        assert arrow.encode_column(encode, texts).to_pylist() == expected
        assert arrow.encode_column(encode, texts.slice(1, 5)).to_pylist() == expected[1:6]


def test_nulls_alone():
    assert arrow.encode_column(encode, pa.nulls(3)).to_pylist() == [None] * 3


def test_no_rows():
    assert len(arrow.encode_column(lambda texts: VECTORS[:0], pa.array([], pa.string()))) == 0


def test_what_is_refused():
    with pytest.raises(InputError, match="must hold strings, not int64"):
        arrow.encode_column(encode, pa.array([1]))
    with pytest.raises(InputError, match=r"precision='int8' needs ranges="):
        arrow.check_encode("encode", {"precision": "int8"})
    with pytest.raises(InputError, match="output_value changes the shape"):
        arrow.check_encode("encode", {"output_value": None})
    with pytest.raises(InputError, match="method must be one of"):
        arrow.check_encode("classify", {})
