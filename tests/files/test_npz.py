"""Test the .npz reader and writer: exact, memory-mapped, and safe against damaged and hostile files."""

import io
import re
import zipfile
import zlib
from mmap import mmap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.base.errors import WeightsError
from engine.files import npz
from engine.files.npz import read_npz, write_npz
from engine.files.reading import release_pages

from ..fuzz.archives import Member, pack
from ..tools.bits import same
from ..tools.damage import LITTLE, mangled, owner, peak_of

ARRAYS = {
    "embeddings.word": np.arange(35, dtype=np.float32).reshape(5, 7),
    "norm": np.array([np.nan, -0.0, np.inf, 1e-45], np.float32),
    "config": np.frombuffer(b'{"a": 1}', np.uint8),
    "weight": np.arange(-127, 128, 2, dtype=np.int8).reshape(4, 32),
}

def valid_file(path: Path) -> bytes:
    write_npz(path, ARRAYS)
    return path.read_bytes()


# Writing and mapping


def test_round_trip_is_exact(tmp_path):
    write_npz(tmp_path / "w.npz", ARRAYS)
    assert same(read_npz(tmp_path / "w.npz"), ARRAYS)


def test_arrays_are_aligned_read_only_views_of_one_map(tmp_path):
    write_npz(tmp_path / "w.npz", {f"a{'b' * n}": np.ones((n + 1, 3), np.float32) for n in range(70)})
    arrays = read_npz(tmp_path / "w.npz").values()
    owners = {id(owner(array)) for array in arrays}
    assert isinstance(owner(next(iter(arrays))), mmap)
    assert len(owners) == 1
    assert not any(array.flags.writeable for array in arrays)
    # A map starts at a page, so the alignment of an address is that of the file offset.
    assert all(array.__array_interface__["data"][0] % npz.ALIGNMENT == 0 for array in arrays)


def test_numpy_reads_what_is_written(tmp_path):
    write_npz(tmp_path / "w.npz", ARRAYS)
    with np.load(tmp_path / "w.npz", allow_pickle=False) as file:
        assert same(dict(file), ARRAYS)


def test_equal_arrays_give_equal_bytes(tmp_path):
    assert valid_file(tmp_path / "one.npz") == valid_file(tmp_path / "two.npz")


def test_any_memory_layout_is_written(tmp_path):
    array = np.arange(24, dtype=np.float32).reshape(4, 6)
    layouts = {"fortran": np.asfortranarray(array), "strided": array[::2, ::3], "scalar": array[0, 0]}
    write_npz(tmp_path / "w.npz", layouts)
    found = read_npz(tmp_path / "w.npz")
    np.testing.assert_array_equal(found["fortran"], array)
    np.testing.assert_array_equal(found["strided"], array[::2, ::3])
    assert found["scalar"].shape == ()


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    before = valid_file(tmp_path / "w.npz")

    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np.lib.format, "write_array", fail)
    with pytest.raises(WeightsError, match="cannot be written: No space left"):
        write_npz(tmp_path / "w.npz", {"a": np.zeros(3)})
    assert [path.name for path in tmp_path.iterdir()] == ["w.npz"]
    assert (tmp_path / "w.npz").read_bytes() == before


@pytest.mark.parametrize("name", ["../a", "a/b", "", "naïve", "a b"])
def test_a_strange_name_is_not_written(tmp_path, name):
    with pytest.raises(WeightsError, match="name"):
        write_npz(tmp_path / "w.npz", {name: np.zeros(3, np.float32)})


@pytest.mark.parametrize(("array", "words"), [(np.array([{}]), "Python objects"), (np.zeros((0, 3)), "is empty")])
def test_what_would_not_be_read_is_not_written(tmp_path, array, words):
    with pytest.raises(WeightsError, match=words):
        write_npz(tmp_path / "w.npz", {"a": array})


def test_zip64(tmp_path, monkeypatch):
    """With lowered limits tiny arrays take the path of arrays above 4 GB."""
    monkeypatch.setattr(zipfile, "ZIP64_LIMIT", 200)
    monkeypatch.setattr(npz, "_ZIP64_FROM", 0)
    write_npz(tmp_path / "ours.npz", ARRAYS)
    np.savez(tmp_path / "numpys.npz", **ARRAYS)
    assert b"PK\6\6" in (tmp_path / "ours.npz").read_bytes()
    found = read_npz(tmp_path / "ours.npz")
    assert same(found, ARRAYS)
    assert all(array.__array_interface__["data"][0] % npz.ALIGNMENT == 0 for array in found.values())
    assert same(read_npz(tmp_path / "numpys.npz"), ARRAYS)


# Files of numpy.savez and of others


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_plain_numpy_files_are_read(tmp_path, save):
    save(tmp_path / "w.npz", **ARRAYS)
    assert same(read_npz(tmp_path / "w.npz"), ARRAYS)


@pytest.mark.parametrize("dtype", ["<f2", ">f2", ">f4", "<f8", ">f8"])
def test_other_floats_become_float32(tmp_path, dtype):
    values = np.array([[1.5, -2.0, 0.0], [np.inf, np.nan, 0.25]])
    np.savez(tmp_path / "w.npz", a=values.astype(dtype))
    found = read_npz(tmp_path / "w.npz")["a"]
    assert found.dtype == np.float32
    assert not found.flags.writeable
    np.testing.assert_array_equal(found, values)


@pytest.mark.parametrize("order", "<>")
def test_uint16_is_read_as_it_is(tmp_path, order):
    values = np.array([[0, 1, 0x7F80], [0x8000, 0xFFFF, 0x3FC0]], f"{order}u2")
    np.savez(tmp_path / "w.npz", a=values)
    found = read_npz(tmp_path / "w.npz")["a"]
    assert found.dtype == np.uint16
    assert found.dtype.isnative
    assert not found.flags.writeable
    np.testing.assert_array_equal(found, values)


def test_fortran_order_and_strings_are_read(tmp_path):
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.savez(tmp_path / "w.npz", a=np.asfortranarray(array), config='{"ä": 1}')
    found = read_npz(tmp_path / "w.npz")
    np.testing.assert_array_equal(found["a"], array)
    assert found["a"].flags.c_contiguous
    assert str(found["config"]) == '{"ä": 1}'


def test_a_streamed_archive_is_read(tmp_path):
    """A writer that cannot seek states the sizes only in the directory."""

    class Pipe(io.BytesIO):
        def seekable(self) -> bool:
            return False

        def tell(self) -> int:
            raise OSError

        def seek(self, *_: object) -> int:
            raise OSError

    pipe = Pipe()
    with zipfile.ZipFile(pipe, "w") as archive, archive.open("a.npy", "w") as member:
        np.lib.format.write_array(member, np.ones(3, np.float32))
    (tmp_path / "w.npz").write_bytes(pipe.getvalue())
    np.testing.assert_array_equal(read_npz(tmp_path / "w.npz")["a"], np.ones(3))


# Damage


def test_cut_anywhere(tmp_path):
    data = valid_file(tmp_path / "w.npz")
    for length in range(len(data)):
        (tmp_path / "cut.npz").write_bytes(data[:length])
        with pytest.raises(WeightsError, match=r"cut\.npz"):
            read_npz(tmp_path / "cut.npz")


def test_a_flipped_bit_is_noticed_or_harmless(tmp_path):
    """Changes of dates, versions, attributes and padding are harmless."""
    data = valid_file(tmp_path / "w.npz")
    noticed = 0
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 1 << position % 8
        (tmp_path / "bit.npz").write_bytes(damaged)
        try:
            found = read_npz(tmp_path / "bit.npz")
        except WeightsError:
            noticed += 1
        else:
            assert same(found, ARRAYS), f"byte {position} changed the arrays without an error"
    assert noticed > sum(array.nbytes for array in ARRAYS.values())


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_mangled_files_raise_nothing_else_and_allocate_little(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "w.npz"
    save = data.draw(st.sampled_from([np.savez, np.savez_compressed]))
    save(path, **ARRAYS)
    path.write_bytes(data.draw(mangled(path.read_bytes()), "file"))
    assert peak_of(read_npz, path) < LITTLE


# Hostile files, made by hand


def archive(*members: Member) -> bytes:
    return pack([*members])


def entry(data: bytes = b"", name: str = "a.npy", **fields: Any) -> Member:
    """Return a member of a hand-made archive; each field may be wrong. Compressed data are given as they are."""
    return Member(name, data, is_packed=True, **fields)


def npy(header: str, data: bytes = b"", version: tuple[int, int] = (1, 0), length: int | None = None) -> bytes:
    text = header.encode() + b"\n"
    size = len(text) if length is None else length
    return b"\x93NUMPY" + bytes(version) + size.to_bytes(2 if version == (1, 0) else 4, "little") + text + data


def npy_of(shape: str, descr: str = "'<f4'", data: bytes = bytes(12)) -> bytes:
    return npy(f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}", data)


def saved(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array(stream, array)
    return stream.getvalue()


GOOD = npy_of("(3,)")
GOOD_CRC = zlib.crc32(GOOD)
DEFLATED = zlib.compress(GOOD)[2:-4]
NESTED = archive(entry(GOOD, "b.npy"))[:30 + 5 + len(GOOD)]
OUTER = saved(np.frombuffer(NESTED, np.uint8))


def test_the_hand_made_archive_is_good():
    assert same(read_file(archive(entry(GOOD))), {"a": np.zeros(3, np.float32)})
    inflated = entry(DEFLATED, method=8, size=len(GOOD), crc=GOOD_CRC)
    assert same(read_file(archive(inflated)), {"a": np.zeros(3, np.float32)})


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def read_file(data: bytes) -> dict[str, np.ndarray]:
    Path("hostile.npz").write_bytes(data)
    return read_npz("hostile.npz")


HOSTILE = {
    "empty": (b"", "empty"),
    "not a zip": (b"\x80\x04 a pickle, say, or a text, of some length", "not a zip archive"),
    "bytes after the end": (archive(entry(GOOD)) + b"\0", "bytes after its end"),
    "bytes before the start": (b"PK" + archive(entry(GOOD)), "directory is not where"),
    "same name twice": (archive(entry(GOOD), entry(GOOD)), "same name"),
    "overlap": (archive(entry(OUTER, "a.npy"), entry(GOOD, "b.npy", offset=35 + len(OUTER) - len(NESTED))), "overlap"),
    "one member twice": (archive(entry(GOOD), entry(GOOD, "b.npy", offset=0)), "disagree"),
    "outside": (archive(entry(GOOD), entry(GOOD, "b.npy", offset=2**31)), "outside"),
    "beyond": (archive(entry(GOOD, size=2**31, compressed_size=2**31)), "beyond"),
    "two sizes": (archive(entry(GOOD, size=7)), "two sizes"),
    "two names": (archive(entry(GOOD, local_name="b.npy")), "disagree"),
    "saturated sizes": (archive(entry(GOOD, size=2**32 - 1, compressed_size=2**32 - 1)), "lacks its zip64"),
    "path": (archive(entry(GOOD, "../../a.npy")), "followed by '.npy'"),
    "absolute path": (archive(entry(GOOD, "/a.npy")), "followed by '.npy'"),
    "not an array": (archive(entry(GOOD, "a.txt")), "followed by '.npy'"),
    "control characters": (archive(entry(GOOD, "a\x1b[2J.npy")), "printable ASCII"),
    "encrypted": (archive(entry(GOOD, flags=1)), "encrypted"),
    "other compression": (archive(entry(GOOD, method=14)), "compression method 14"),
    "wrong checksum": (archive(entry(GOOD, crc=5)), "checksum"),
    "damaged compression": (archive(entry(b"\xff" * 50, method=8, size=60)), "decompress"),
    "inflates to less": (archive(entry(DEFLATED, method=8, size=len(GOOD) + 1, crc=GOOD_CRC)), "unpack"),
    "inflates to more": (archive(entry(DEFLATED, method=8, size=len(GOOD) - 1, crc=GOOD_CRC)), "unpack"),
    "bytes after compressed": (archive(entry(DEFLATED + b"x", method=8, size=len(GOOD), crc=GOOD_CRC)), "unpack"),
    "bomb by its own account": (archive(entry(DEFLATED, method=8, size=2**31)), "more than weights"),
    "no header": (archive(entry(b"")), "valid .npy header"),
    "giant header": (archive(entry(npy("{" + " " * 60_000))), "valid .npy header"),
    "header claims 4 GB": (archive(entry(npy("{}", version=(2, 0), length=2**32 - 1))), "valid .npy header"),
    "nested header": (archive(entry(npy("(" * 9_000))), "valid .npy header"),
    "header calls a function": (archive(entry(npy_of("exit()"))), "valid .npy header"),
    "format version 3": (archive(entry(npy("{}", version=(3, 0)))), "valid .npy header"),
    "pickle": (archive(entry(npy_of("(1,)", "'|O'", b"cos\nsystem\n(S'true'\ntR."))), "pickled"),
    "structured": (archive(entry(npy_of("(3,)", "[('x', '<f4')]"))), "valid .npy header"),
    "integers": (archive(entry(npy_of("(3,)", "'<i4'"))), "dtype int32"),
    "long double": (archive(entry(npy_of("(1,)", "'<f16'", bytes(16)))), "dtype"),
    "negative shape": (archive(entry(npy_of("(-3, -1)"))), "impossible shape"),
    "empty array": (archive(entry(npy_of("(0, 99999999999999999999)", data=b""))), "impossible shape"),
    "bool shape": (archive(entry(npy_of("(True, 3)"))), "valid .npy header"),
    "hexadecimal shape": (archive(entry(npy_of(f"(0x{'f' * 9000},)"))), "valid .npy header"),
    "a header that Python warns of": (archive(entry(npy_of("(1or 2,)"))), "valid .npy header"),
    "an old alias": (archive(entry(npy_of("(3,)", "'|a4'"))), "valid .npy header"),
    "forty dimensions": (archive(entry(npy_of(str((1,) * 39 + (3,))))), "impossible shape"),
    "huge shape": (archive(entry(npy_of("(4294967296, 4294967296, 3)"))), "not shape"),
    "terabytes": (archive(entry(npy_of("(1099511627776,)"))), "not shape"),
    "shape too small": (archive(entry(npy_of("(2,)"))), "not shape"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_file(case):
    data, words = HOSTILE[case]
    Path("hostile.npz").write_bytes(data)
    with pytest.raises(WeightsError, match=r"hostile\.npz: .*" + words + ".*(write|copy) it again"):
        read_npz("hostile.npz")
    assert peak_of(read_npz, "hostile.npz") < LITTLE


def test_a_member_that_lies_about_its_size_is_not_inflated():
    zeros = zlib.compress(bytes(30_000_000))[2:-4]
    Path("bomb.npz").write_bytes(archive(entry(zeros, method=8, size=1000)))
    assert peak_of(read_npz, "bomb.npz") < LITTLE


def test_a_bomb_of_many_members_is_not_inflated():
    zeros = zlib.compress(bytes(1_000_000))[2:-4]
    entries = [entry(zeros, f"a{i}.npy", method=8, size=1_000_000) for i in range(100)]
    with pytest.raises(WeightsError, match="more than weights"):
        read_file(archive(*entries))


def test_missing_files_and_folders_are_named():
    with pytest.raises(WeightsError, match=r"missing\.npz: cannot be read: No such file"):
        read_npz("missing.npz")
    with pytest.raises(WeightsError, match="cannot be read"):
        read_npz(".")


def test_released_pages_are_read_again(tmp_path):
    arrays = {"a": np.arange(3_000_000, dtype=np.float32), "b": np.ones(5, np.float32)}
    write_npz(tmp_path / "weights.npz", arrays)
    mapped = read_npz(tmp_path / "weights.npz")
    resident = resident_file_kb()
    release_pages([*mapped.values(), np.ones(3, np.float32)])
    assert resident_file_kb() < resident - 10_000
    assert all(np.array_equal(mapped[name], array) for name, array in arrays.items())


def resident_file_kb():
    """Return the kilobytes of mapped files that are in memory for this process."""
    status = Path("/proc/self/status")
    if not status.exists():
        pytest.skip("no /proc to ask")
    return int(re.search(r"RssFile:\s+(\d+)", status.read_text())[1])
