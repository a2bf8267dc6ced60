"""Files of torch.save: those of torch itself, those of a writer of our own, and hostile ones."""

import zipfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.base.errors import WeightsError
from engine.files.reading import FormatError
from engine.files.torch_checkpoint import read_checkpoint
from engine.files.torch_pickle import MAX_STEPS, read_pickle
from engine.weights.bfloat16 import from_bfloat16

from ..tools.damage import LITTLE, mangled, owner, peak_of
from ..tools.limited import outcome
from ..tools.paths import CHECKPOINTS
from ..tools.torch_files import (
    archive,
    checkpoint,
    integer,
    items,
    mapping,
    name,
    older,
    program,
    storage,
    tensor,
    text,
)

GOLDEN = CHECKPOINTS
EXPECTED = dict(np.load(GOLDEN / "expected.npz"))
LINEAR = {key: EXPECTED.pop(f"linear.{key}") for key in ("weight", "bias")}
SIX = np.arange(6, dtype=np.float32)


def known(key: str) -> str | None:
    return None if key == "position_ids" else key


@pytest.mark.parametrize("memory", ["map", "copy"])
@pytest.mark.parametrize("file", ["zip", "protocol4", "legacy", "nested"])
def test_files_of_torch(file, memory):
    found = read_checkpoint(GOLDEN / f"{file}.bin", known, keep_float16=True, memory=memory)
    assert list(found) == list(EXPECTED)
    for key, array in found.items():
        expected = EXPECTED[key]
        assert array.dtype == (np.uint16 if key == "bfloat16" else expected.dtype)
        np.testing.assert_array_equal(from_bfloat16(array) if key == "bfloat16" else array, expected, strict=True)
        assert array.flags.c_contiguous
        assert array.flags.aligned
        assert not array.flags.writeable


def test_a_state_dict_with_its_versions():
    found = read_checkpoint(GOLDEN / "metadata.bin")
    assert {key: array.tolist() for key, array in found.items()} == {key: a.tolist() for key, a in LINEAR.items()}


@pytest.mark.parametrize("file", ["module", "module_legacy"])
def test_a_module_is_refused_by_name(file):
    with pytest.raises(WeightsError, match=r"asks for torch\.nn\.modules\.linear\.Linear(.|\n)*model\.state_dict\(\)"):
        read_checkpoint(GOLDEN / f"{file}.bin")


def test_contiguous_tensors_are_views_of_one_map():
    found = read_checkpoint(GOLDEN / "zip.bin", known)
    assert owner(found["plain"]) is owner(found["bfloat16"]) is owner(found["row"])
    assert np.shares_memory(found["plain"], found["tied"])
    assert np.shares_memory(found["plain"], found["row"])
    assert not np.shares_memory(found["plain"], found["transposed"])


def test_half_precision_is_widened_unless_it_is_kept():
    found = read_checkpoint(GOLDEN / "zip.bin", known)
    np.testing.assert_array_equal(found["half"], EXPECTED["half"].astype(np.float32), strict=True)


def test_a_tensor_of_integers_is_refused_unless_it_is_left_out():
    with pytest.raises(WeightsError, match="'position_ids' has the kind Long; expected Double, Float, Half, BFloat16"):
        read_checkpoint(GOLDEN / "zip.bin")


def test_two_tensors_of_one_name():
    with pytest.raises(WeightsError, match="two tensors are both x"):
        read_checkpoint(GOLDEN / "metadata.bin", lambda key: "x")


@pytest.mark.parametrize("legacy", [False, True])
def test_our_own_writer(tmp_path, legacy):
    arrays = {"a": SIX.reshape(2, 3), "b": SIX[:1].reshape(()), "c": SIX.astype(np.float16)}
    (tmp_path / "x.bin").write_bytes(checkpoint(arrays, legacy))
    found = read_checkpoint(tmp_path / "x.bin", keep_float16=True)
    for key, array in arrays.items():
        np.testing.assert_array_equal(found[key], array, strict=True)


def test_compressed_members(tmp_path):
    pickle = program(mapping({"a": tensor(storage())}))
    (tmp_path / "x.bin").write_bytes(archive(pickle, {"0": SIX.tobytes()}, zipfile.ZIP_DEFLATED))
    assert read_checkpoint(tmp_path / "x.bin")["a"].tolist() == SIX.reshape(2, 3).tolist()


def of(value: bytes) -> bytes:
    """Return an archive with one storage of six floats, and a state dict with the tensor `value`."""
    return archive(program(mapping({"a": value})), {"0": SIX.tobytes()})


GOOD = program(mapping({"a": tensor(storage())}))
OLD = program(mapping({"a": tensor(storage(end=b"N"))}))
SIZE = (6).to_bytes(8, "little")
WRONG = {
    "os.system": (of(name("os", "system") + items(text("true")) + b"R"), r"asks for os\.system"),
    "eval": (of(name("builtins", "eval") + items(text("1")) + b"R"), r"asks for builtins\.eval"),
    "part of a name": (of(name("torch", "_utils._rebuild_tensor_v2")), "has no tensors"),
    "a name without end": (of(b"c" + b"a" * 300), "a name without end"),
    "instance": (of(b"(itorch\nx\n"), "instruction b'i'"),
    "a call of a tensor": (of(tensor(storage()) + b")R"), "calls something that is no function"),
    "a call without a tuple": (of(name("collections", "OrderedDict") + b"]R"), "no function"),
    "attributes of a tensor": (of(tensor(storage()) + b"}b"), "needs a dict"),
    "a list of pairs": (of(name("collections", "OrderedDict") + items(b"]") + b"R"), "makes a dictionary"),
    "a large key": (of(b"}" + integer(2**31) + b"Ns"), "with the key 2147483648; integers below 2,147,483,648"),
    "a key that is a tuple": (of(b"})Ns"), "neither texts nor integers"),
    "an odd number": (of(b"}(Nu"), "neither texts nor integers"),
    "empty stack": (archive(program(b""), {}), "empty stack"),
    "no mark": (archive(program(b"}u"), {}), "no mark where it needs one"),
    "no value kept": (of(b"h\7"), "asks for the value 7"),
    "version": (archive(b"\x80\x06N.", {}), "version 6; expected 2 to 5"),
    "cut short": (archive(GOOD[:-1], {}), "cut short"),
    "not UTF-8": (of(b"X\1\0\0\0\xff"), "not UTF-8"),
    "no state dict": (archive(program(b"]"), {}), "no state dict, .* but list"),
    "no tensors": (archive(program(mapping({"a": b"N"})), {}), "has no tensors"),
    "an unknown kind": (of(tensor(storage(kind="QInt8"))), r"asks for torch\.QInt8Storage"),
    "a storage of another size": (of(tensor(storage(size=7), (7,), (1,))), "24 bytes, which is not 7 elements"),
    "no storage": (of(tensor(storage("1"))), "lacks the storage '1'"),
    "two sizes": (archive(program(mapping({"a": tensor(storage()), "b": tensor(storage(size=5))})), {}), "two sizes"),
    "a key with a path": (of(tensor(storage("../../x"))), "lacks the storage"),
    "negative size": (of(tensor(storage(size=-1))), "names no storage"),
    "a persistent id": (of(text("0") + b"Q"), "names no storage"),
    "metadata": (of(name("torch._utils", "_rebuild_tensor_v2") + items(
        storage(), integer(0), items(integer(6)), items(integer(1)), b"\x89", mapping({}),
        b"}(" + text("neg") + b"\x88u"
    ) + b"R"), "does not write for weights"),
    "negative stride": (of(tensor(storage(), (6,), (-1,))), "does not write for weights"),
    "a stride too many": (of(tensor(storage(), (6,), (1, 1))), "does not write for weights"),
    "nine dimensions": (of(tensor(storage(), (1,) * 9, (1,) * 9)), "does not write for weights"),
    "empty": (of(tensor(storage(), (0, 3), (3, 1))), "is empty"),
    "an offset beyond": (of(tensor(storage(), offset=1)), "does not lie in its storage"),
    "a stride beyond": (of(tensor(storage(), (2, 3), (4, 1))), "does not lie in its storage"),
    "expanded": (of(tensor(storage(), (2**30, 6), (0, 1))), "does not lie in its storage"),
    "a size that overflows": (of(tensor(storage(), (2**40,) * 4, (2**40,) * 4)), "does not lie in its storage"),
    "big endian": (archive(GOOD, {"0": SIX.tobytes()}, byteorder=b"big"), "big-endian"),
    "TorchScript": (archive(GOOD, {}, **{"constants.pkl": b""}), "a TorchScript program"),
    "no data.pkl": (archive(GOOD, {}).replace(b"data.pkl", b"data.pkx"), "found none"),
    "text": (b"hello, hello, hello", "no file of torch.save"),
    "nothing": (b"", "the file is empty"),
    "tar": (b"x" * 257 + b"ustar" + b"\0" * 300, "no file of torch.save"),
    "older, big endian": (older(OLD, ["0"], SIZE + SIX.tobytes(), b"\x89"), "big-endian"),
    "older, cut short": (older(OLD, ["0"], SIZE + SIX.tobytes()[:-1]), "cut short"),
    "older, another size": (older(OLD, ["0"], (7).to_bytes(8, "little") + SIX.tobytes()), "28 bytes, which is not 6"),
    "older, more": (older(OLD, ["0"], SIZE + SIX.tobytes() + b"x"), "1 bytes follow"),
    "older, no key": (older(OLD, [], b""), "does not fit its tensors"),
    "older, a view": (older(program(mapping({"a": tensor(storage(end=items(text("0"), integer(0), integer(6))))})),
                            ["0"], SIZE + SIX.tobytes()), "names no storage"),
    "older, a version": (older(OLD, ["0"], b"").replace(integer(1001), integer(1002)), "an unknown version of the"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_wrong_files(tmp_path, case):
    data, words = WRONG[case]
    (tmp_path / "x.bin").write_bytes(data)
    with pytest.raises(WeightsError, match=words):
        read_checkpoint(tmp_path / "x.bin")


BOMBS = {
    "keys of one hash": b"}(" + b"".join(b"\x8a\x0f" + (i * (2**61 - 1)).to_bytes(15, "little") + b"N"
                                        for i in range(20_000)) + b"u",
    "keys of one hash, one after the other": b"}" + b"".join(
        b"\x8a\x0f" + (-i * (2**61 - 1)).to_bytes(15, "little", signed=True) + b"Ns" for i in range(20_000)),
    "a memo of 32 GB": b"Nr\xff\xff\xff\xff",
    "lists": b"]" * 2 * MAX_STEPS,
    "dictionaries": b"}" * 2 * MAX_STEPS,
    "marks": b"(" * 2 * MAX_STEPS,
    "tuples in tuples": b")" + b"\x85" * (MAX_STEPS - 9),
    "memo": b"N" + b"\x94" * 2 * MAX_STEPS,
    "a billion laughs": b"]q\0" + b"".join(b"](h" + bytes([i]) + b"h" + bytes([i]) + b"eq" + bytes([i + 1])
                                           for i in range(200)),
    "a list in itself": b"]q\0h\0a",
    "a dictionary in itself": b"}q\0X\1\0\0\0ah\0s",
    "a state dict in itself": b"}q\0" + text("state_dict") + b"h\0s",
    "a huge integer": b"\x8a\xff" + b"\x7f" * 255,
    "a huge text": b"X\xff\xff\xff\xff",
    "a huge text of version 4": b"\x8d" + b"\xff" * 8,
    "a huge frame": b"\x95" + b"\xff" * 8 + b"N",
}


@pytest.mark.parametrize("case", BOMBS)
def test_bombs(tmp_path, case):
    (tmp_path / "x.bin").write_bytes(archive(program(BOMBS[case]), {}, zipfile.ZIP_DEFLATED))
    result = outcome(read_checkpoint, tmp_path / "x.bin")
    assert result.startswith("EngineError")
    assert len(result) < 1000


def test_the_state_of_an_optimizer_has_integer_keys(tmp_path):
    state = b"}(" + b"".join(integer(key) + b"N" for key in (0, 1, -(2**31) + 1, 2**31 - 1)) + b"u"
    weights = mapping({"a": tensor(storage())})
    (tmp_path / "x.bin").write_bytes(archive(program(mapping({"model": weights, "state": state})),
                                             {"0": SIX.tobytes()}))
    assert read_checkpoint(tmp_path / "x.bin")["a"].tolist() == SIX.reshape(2, 3).tolist()


def test_a_pickle_has_a_limit_of_steps():
    with pytest.raises(FormatError, match=f"more than {MAX_STEPS:,} instructions"):
        read_pickle(memoryview(b"\x80\x02" * MAX_STEPS + b"N."), {})


def test_one_storage_copied_many_times(tmp_path):
    """Views that are not contiguous are copied, so that a small file could ask for any amount of memory."""
    place = storage(size=2**18)
    turned = tensor(place, (512, 512), (1, 512))
    pickle = program(mapping({str(i): turned for i in range(1000)}))
    (tmp_path / "x.bin").write_bytes(archive(pickle, {"0": bytes(2**20)}))
    assert "take more than 67,108,864 bytes" in outcome(read_checkpoint, tmp_path / "x.bin")


def test_a_member_that_inflates(tmp_path):
    pickle = program(mapping({"a": tensor(storage(size=2**26), (2**26,), (1,))}))
    (tmp_path / "x.bin").write_bytes(archive(pickle, {"0": bytes(2**28)}, zipfile.ZIP_DEFLATED))
    assert "would unpack to" in outcome(read_checkpoint, tmp_path / "x.bin")


@pytest.mark.parametrize("file", ["metadata", "module_legacy", "legacy"])
def test_a_file_cut_at_any_byte(tmp_path, file):
    data = (GOLDEN / f"{file}.bin").read_bytes()
    for end in range(0, len(data), 1 + len(data) // 400):
        (tmp_path / "x.bin").write_bytes(data[:end])
        with pytest.raises(WeightsError):
            read_checkpoint(tmp_path / "x.bin", known)


@given(st.data())
def test_damaged_files(tmp_path_factory, data):
    file = data.draw(st.sampled_from(["zip", "legacy", "protocol4"]))
    path = tmp_path_factory.getbasetemp() / "damaged.bin"
    path.write_bytes(data.draw(mangled((GOLDEN / f"{file}.bin").read_bytes())))
    assert peak_of(read_checkpoint, path, known) < LITTLE
