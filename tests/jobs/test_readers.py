"""Test that each row of a file is in one range, wherever the ranges end."""

import io
import json
import os
import re
import sys

import pytest

from engine.base.errors import InputError, without_credentials
from engine.jobs import readers, storage
from engine.jobs.batch_api import read_request
from engine.jobs.readers import FORMATS
from engine.jobs.rows import ColumnNames
from engine.jobs.storage import InputFile, find_inputs, open_folder, refuse_own_patterns

from ..tools.limited import outcome

DATA = {
    "text": (b"ab\n\ncde\r\nf\n" + b"g" * 20 + b"\nlast", ["ab", "", "cde", "f", "g" * 20, "last"]),
    "jsonl": (b'{"t":"a"}\n\n{"t":"b"}\r\n{"t":"cde"}\n{"t":"f"}', ["a", "b", "cde", "f"]),
    "csv": (b'n,t\n1,a\n2,"b\nc"\r\n\n3,\n4,"d,""e"""', ["a", "b\nc", "", 'd,"e"']),
}


@pytest.mark.parametrize("name", DATA)
def test_each_row_is_in_one_range(name):
    data, texts = DATA[name]
    file, columns = InputFile("file", len(data), 0, lambda: io.BytesIO(data)), ColumnNames("t", None, ())
    for size in range(1, len(data) + 2):
        reader = FORMATS[name](100, size)
        ranges = reader.ranges(file, columns)
        found = [reader.rows(file, part, columns) for part in ranges]
        assert [text for rows in found for text in rows.texts] == texts, size
        positions = [position for rows in found for position in rows.positions]
        assert positions == sorted(set(positions)), size
        assert size <= len(data) or len(ranges) == 1


@pytest.mark.parametrize("name", DATA)
def test_a_range_has_so_many_rows_at_most(name, monkeypatch):
    """A megabyte of empty lines would be a unit of a million vectors."""
    monkeypatch.setattr(readers, "MORE_LINES", 1)
    data, texts = DATA[name]
    file, columns = InputFile("file", len(data), 0, lambda: io.BytesIO(data)), ColumnNames("t", None, ())
    for size in range(1, len(data) + 2):
        for most in range(1, 6):
            reader = FORMATS[name](most, size)
            ranges = reader.ranges(file, columns)
            found = [reader.rows(file, part, columns) for part in ranges]
            assert [text for rows in found for text in rows.texts] == texts, (size, most)
            assert max(len(rows.texts) for rows in found) <= most
            assert all(part.last - part.first <= size for part in ranges) or name == "csv"
            few = all(line.count(b"\n") < most for line in (data[i : i + size] for i in range(0, len(data), size)))
            assert not few or name == "csv" or len(ranges) == -(-len(data) // size)


@pytest.mark.parametrize("name", ["text", "jsonl", "openai"])
def test_a_file_of_a_store_with_more_rows_is_refused(name, monkeypatch):
    """To count its lines would read all of its bytes once more."""
    monkeypatch.setattr(readers, "MORE_LINES", 1)
    data = b'{"t":"a"}\n' * 8
    file = InputFile("file", len(data), 0, lambda: io.BytesIO(data), path="s3://bucket/file")
    columns, reader = ColumnNames("t", None, ()), FORMATS[name](8, 1000)
    [part] = reader.ranges(file, columns)
    assert len(reader.rows(file, part, columns).texts) == 8
    with pytest.raises(InputError, match=r"file has more than 7 rows in its bytes 0 to 80, .* a smaller --unit-bytes"):
        FORMATS[name](7, 1000).rows(file, part, columns)


def test_a_request_has_so_many_texts_at_most():
    def read(count):
        body = {"custom_id": "a", "method": "POST", "url": "/v1/embeddings", "body": {"input": ["a"] * count}}
        return read_request(json.dumps(body).encode())

    assert len(read(2048).texts) == 2048
    assert read(2049).reason == "input may have at most 2,048 texts, and has 2,049"


def parquet(table, **options):
    """Return a file of Parquet in memory as an input."""
    pq = pytest.importorskip("pyarrow.parquet")
    out = io.BytesIO()
    pq.write_table(table, out, **options)
    return InputFile("file", len(out.getvalue()), 0, lambda: io.BytesIO(out.getvalue()))


def test_equal_values_of_parquet_stand_in_memory_once():
    pa = pytest.importorskip("pyarrow")
    texts = pa.DictionaryArray.from_arrays(pa.array([0] * 16_384, pa.int32()), ["x" * 100_000])
    file = parquet(pa.table({"t": texts}), store_schema=False)

    def read(keep):
        columns, reader = ColumnNames("t", None, keep, {"t": pa.string()}), FORMATS["parquet"](16_384, 1)
        [part] = reader.ranges(file, columns)
        return sum(map(len, reader.rows(file, part, columns).texts))

    assert outcome(read, (), memory=300_000_000) == f"ok: {100_000 * 16_384}"
    found = outcome(read, ("t",), memory=300_000_000)
    assert found.startswith("EngineError: file: column 't' holds 1,638,400,000 bytes in 16,384 rows, and the limit")


def test_parquet_that_unpacks_to_far_more_is_refused(monkeypatch):
    pa = pytest.importorskip("pyarrow")
    monkeypatch.setattr(readers, "MOST_UNPACKED", 10_000_000)
    file = parquet(pa.table({"t": ["x" * 10_000_001]}), compression="zstd")

    def read():
        return FORMATS["parquet"](9, 9).ranges(file, ColumnNames("t", None, ()))

    assert re.fullmatch(r"EngineError: file: [\d,]+ bytes of column 't' in row group 0 unpack to 10,[\d,]+, and the "
                        r"limit is 10,000,000 .*; write smaller row groups", outcome(read))


def test_ranges_of_large_texts_of_parquet_have_fewer_rows(monkeypatch):
    pa = pytest.importorskip("pyarrow")
    monkeypatch.setattr(readers, "MOST_UNPACKED", 2000)
    monkeypatch.setattr(readers, "MOST_LINE", 999)
    texts = [chr(97 + i) * 500 for i in range(10)] + ["z" * 1000]
    file = parquet(pa.table({"t": texts}), use_dictionary=False, compression="none")
    columns = ColumnNames("t", None, ())
    reader = FORMATS["parquet"](9, 9)
    found = [reader.rows(file, part, columns) for part in reader.ranges(file, columns)]
    assert [len(rows.texts) for rows in found] == [2, 2, 2, 2, 2, 1]
    assert [text for rows in found for text in rows.texts] == [*texts[:-1], None]
    assert found[-1].reasons == {0: "the text has 1,000 bytes, and the limit is 999"}


@pytest.mark.parametrize("depth", [900, 100_000])
def test_fields_of_json_that_are_too_deep(depth):
    data = b'{"t":"a","k":' + b"[" * depth + b"1" + b"]" * depth + b"}"
    file, columns = InputFile("file", len(data), 0, lambda: io.BytesIO(data)), ColumnNames("t", None, ("k",))

    def read(limit):
        sys.setrecursionlimit(limit)
        [part] = FORMATS["jsonl"](9, 10**7).ranges(file, columns)
        rows = FORMATS["jsonl"](9, 10**7).rows(file, part, columns)
        return rows.texts, rows.columns, [*rows.reasons.values()]

    found = {outcome(read, limit) for limit in range(900, 1000, 5)}
    assert all(re.fullmatch(r"ok: \(\[None\], \{'k': \[None\]\}, \[.*\]\)|ok: \(\['a'\], \{'k': .*", text)
               for text in found), found


@pytest.mark.parametrize(("data", "texts", "reasons"), [
    (b"n,t\n1,a, b\n2,c,\n", [None, "c"], ["3 fields"]),
    (b'n,t\n1,"a\n2,b\n', [None], ["unexpected end of data"]),
    (b'n,t\n1,"a\n2,"b"\n3,c\n', [None, "c"], ["no CSV"]), (b"n,t\n", [], [])])
def test_csv_loses_nothing_in_silence(data, texts, reasons):
    """A comma or a quote that is not escaped would cut a text, or take the rows after it into one."""
    file, columns = InputFile("file", len(data), 0, lambda: io.BytesIO(data)), ColumnNames("t", "n", ())
    reader = FORMATS["csv"](1, 1000)
    found = [reader.rows(file, part, columns) for part in reader.ranges(file, columns)]
    assert [text for rows in found for text in rows.texts] == texts
    given = [reason for rows in found for reason in rows.reasons.values()]
    assert all(a in b for a, b in zip(reasons, given, strict=True))


class Bounded(io.BytesIO):
    """A file whose lines must not be read whole, whatever their length; it counts the bytes that are read."""

    total = 0

    def readline(self, size=-1):
        assert size > 0
        line = super().readline(size)
        Bounded.total += len(line)
        return line


@pytest.mark.parametrize(("name", "data", "position"), [
    ("text", b"a\n%s\nc", 2), ("jsonl", b'{"t":"a"}\n{"t":"%s"}\n{"t":"c"}', 10), ("csv", b"n,t\n1,a\n2,%s\n3,c\n", 8),
    ("csv", b't\na\n"\n\n%s",\nc\n', 4)], ids=["text", "jsonl", "csv", "quoted"])
def test_a_line_that_is_too_long_is_rejected(monkeypatch, name, data, position):
    monkeypatch.setattr(readers, "MOST_LINE", 16)
    data = data % (b"x" * 40)
    file, columns = InputFile("file", len(data), 0, lambda: Bounded(data)), ColumnNames("t", None, ())
    reader = FORMATS[name](1, 1000)
    [rows] = [reader.rows(file, part, columns) for part in reader.ranges(file, columns)]
    assert rows.texts == ["a", None, "c"]
    assert " 16 bytes" in rows.reasons[1]
    assert rows.positions[1] == position


def test_a_file_without_line_ends_is_read_once(monkeypatch):
    monkeypatch.setattr(readers, "MOST_LINE", 16)
    monkeypatch.setattr(Bounded, "total", 0)
    data = b"x" * 4096
    file, columns = InputFile("file", len(data), 0, lambda: Bounded(data)), ColumnNames("t", None, ())
    reader = FORMATS["text"](1, 64)
    assert [reader.rows(file, part, columns).texts for part in reader.ranges(file, columns)] == [[None]] + [[]] * 63
    assert Bounded.total < 1.1 * len(data)


@pytest.mark.parametrize("data", [b"n,n,t\n", b"n,t\r1,a\r"], ids=["twice", "line ends"])
def test_csv_header(data):
    file = InputFile("file", len(data), 0, lambda: io.BytesIO(data))
    with pytest.raises(InputError, match=r"2 columns of the name 'n'|cannot be read"):
        FORMATS["csv"](1, 9).ranges(file, ColumnNames("t", "n", ()))


def test_a_store_that_cannot_be_reached(monkeypatch):
    """Without the limit, Google's client would try for a quarter of an hour."""
    pytest.importorskip("pyarrow")
    monkeypatch.setattr(storage, "RETRY_SECONDS", 1)
    with pytest.raises(InputError, match=r"cannot be reached: .*exhausted.*; check the name, the network"):
        open_folder("gs://anonymous@bucket/in?scheme=http&endpoint_override=127.0.0.1:9").names()


@pytest.mark.parametrize(("place", "rest"), [
    ("s3://key:hid@bucket name/out", "s3://bucket name/out"), ("s3://key:hid/hid@bucket/a@b", "s3://bucket/a@b"),
    ("s3://key:a@hid@b/out", "s3://b/out"),
    (f"abfs://:{'hid' * 40}@a b/c", "abfs://a b/c"), ("abfs://c@account/out?sas=hid", "abfs://c@account/out")])
def test_credentials_are_not_shown(place, rest):
    pytest.importorskip("pyarrow")
    with pytest.raises(InputError, match=f"^'{rest}' cannot be reached: ") as raised:
        open_folder(place)
    assert "hid" not in str(raised.value)


@pytest.mark.parametrize("place", ["s3://bucket/out", "s3://bucket/out/?region=eu", "s3://key:hid@bucket/out?region=eu"])
def test_own_parts_are_known_by_every_uri(place):
    with pytest.raises(InputError, match="also matches what the job writes") as raised:
        refuse_own_patterns(["s3://bucket/**/*.parquet?region=us"], place, ["part-0.parquet"])
    assert "hid" not in str(raised.value)
    with pytest.raises(InputError, match="also matches what the job writes"):
        refuse_own_patterns(["s3://bucket/out/*.parquet?region=us"], place, ["part-0.parquet"])
    refuse_own_patterns(["s3://bucket/in/*.parquet?region=us"], place, ["part-0.parquet"])


def test_names_of_files_are_shown_escaped(tmp_path):
    """A terminal would obey the bytes."""
    (tmp_path / "a\x1b[31m.gz").write_text("a")
    with pytest.raises(InputError, match=r"^a\\x1b\[31m\.gz is compressed"):
        readers.refuse_compressed(*find_inputs([str(tmp_path / "a*")]))


def test_what_is_a_credential():
    given = "no file matches 'abfs://container@account.net/x?client_secret=hid&tenant_id=a'; expected files"
    assert without_credentials(given) == "no file matches 'abfs://container@account.net/x'; expected files"


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_what_a_pattern_matches_is_read_once_or_refused(tmp_path, scheme):
    if scheme:
        pytest.importorskip("pyarrow")
    (tmp_path / "a[1].txt").write_text("a")
    (tmp_path / "b\udcff.txt").write_text("b")
    assert [file.name for file in find_inputs([f"{tmp_path}/*"])] == ["a[1].txt", "b\\xff.txt"]
    assert [file.name for file in find_inputs([f"{tmp_path}/a[1].txt"])] == ["a[1].txt"]
    odd = tmp_path / "c.txt"
    for make, message in ((lambda: odd.symlink_to("nothing"), "a link to a file that is not there"),
                          (lambda: os.mkfifo(odd), "a pipe"), (lambda: odd.symlink_to("a[1].txt"), "are one file")):
        make()
        with pytest.raises(InputError, match=message):
            find_inputs([f"{scheme}{tmp_path}/*.txt"])
        odd.unlink()
    odd.mkdir()
    with pytest.raises(InputError, match="is a folder"):
        find_inputs([f"{tmp_path}/*.txt"])
    (odd / "loop").symlink_to("..")
    with pytest.raises(InputError, match="are one file"):
        find_inputs([f"{scheme}{tmp_path}/**/*.txt"])
    (odd / "loop").unlink()
    with pytest.raises(InputError, match="two inputs are called"):
        find_inputs([f"{tmp_path}/a*", f"{scheme}{tmp_path}/a*.txt"])


@pytest.mark.parametrize("separator", [";", "\t", "|"])
def test_csv_with_another_separator_is_named(separator):
    def ranges(data):
        file = InputFile("a.csv", len(data), 0, lambda: io.BytesIO(data))
        return FORMATS["csv"](100, 100).ranges(file, ColumnNames("text", None, ("id",)))

    for quote in ("", '"'):
        header = separator.join(f"{quote}{name}{quote}" for name in ("id", "text", "note, if any"))
        with pytest.raises(InputError, match=re.escape(f"its columns are separated by {separator!r}, and only commas")):
            ranges(f"{header}\n1{separator}a\n".encode())
    with pytest.raises(InputError, match="has no column 'id'"):
        ranges(f"text,number\na{separator},1\n".encode())
    assert ranges(f"id,text,a{separator}b{separator}c{separator}d\n1,a,\n".encode())
