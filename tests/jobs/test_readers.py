"""Test that each row of a file is in one range, wherever the ranges end."""

import io

import pytest

from engine.jobs.readers import FORMATS, Columns
from engine.jobs.storage import InputFile

DATA = {
    "text": (b"ab\n\ncde\r\nf\n" + b"g" * 20 + b"\nlast", ["ab", "", "cde", "f", "g" * 20, "last"]),
    "jsonl": (b'{"t":"a"}\n\n{"t":"b"}\r\n{"t":"cde"}\n{"t":"f"}', ["a", "b", "cde", "f"]),
    "csv": (b'n,t\n1,a\n2,"b\nc"\r\n\n3,\n4,"d,""e"""', ["a", "b\nc", "", 'd,"e"']),
}


@pytest.mark.parametrize("name", DATA)
def test_each_row_is_in_one_range(name):
    data, texts = DATA[name]
    file, columns = InputFile("file", len(data), 0, lambda: io.BytesIO(data)), Columns("t", None, ())
    for size in range(1, len(data) + 2):
        reader = FORMATS[name](1, size)
        ranges = reader.ranges(file, columns)
        found = [reader.rows(file, part, columns) for part in ranges]
        assert [text for rows in found for text in rows.texts] == texts, size
        positions = [position for rows in found for position in rows.positions]
        assert positions == sorted(set(positions)), size
        assert size <= len(data) or len(ranges) == 1
