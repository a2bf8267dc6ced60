"""Forms with a file: whatever parts a body comes in, and what is wrong with it; the file lies on disk."""

import gc
import tempfile
from contextlib import suppress

import pytest

pytest.importorskip("hypothesis")
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.base.errors import Cancelled, Overloaded

pytest.importorskip("python_multipart")

from engine.server.admission import Memory, Room
from engine.server.multipart import FormParts, Upload
from engine.server.refusals import Refusal
from engine.server.settings import Limit

TYPE = b"multipart/form-data; boundary=cut"
FILE = bytes(range(256)) * 3 + b"\r\n--cu\r\n--\r\n"


def part(name, data, more=""):
    return b'--cut\r\nContent-Disposition: form-data; name="%b"%b\r\n\r\n%b\r\n' % (name.encode(), more.encode(), data)


WHOLE = b"".join((part("model", b"tiny"), part("file", FILE, '; filename="a\\"b.wav"\r\nContent-Type: audio/wav'),
                  part("names[]", "é".encode()), part("names[]", b""), b"--cut--\r\nwhat follows is left out"))


@pytest.fixture
def upload():
    upload = Upload(Memory(100_000), "")
    yield upload
    upload.close()


@pytest.mark.parametrize("size", [1, 7, 64, 100_000])
def test_a_body_comes_in_parts_of_any_size(upload, size):
    parts = FormParts(TYPE, "file", upload)
    for first in range(0, len(WHOLE), size):
        parts.feed(WHOLE[first : first + size])
    parts.end()
    assert parts.fields == {"model": ["tiny"], "names[]": ["é", ""]}
    assert (upload.size, upload.room.size) == (len(FILE), len(FILE))
    with upload.take() as file:
        assert file.read() == FILE


@pytest.mark.parametrize(("body", "reason", "message"), [
    (b"", "wrong", "ends before its last boundary"), (WHOLE[:300], "wrong", "ends before its last boundary"),
    (b"no form", "wrong", "no multipart/form-data that can be read"),
    (part("model", b"a") + b"--cut--", "wrong", "file: the field is missing"),
    (part("file", b"a") * 2 + b"--cut--", "wrong", "has one file, in the field file"),
    (part("other", b"a", '; filename="a"') + b"--cut--", "wrong", "another in 'other'"),
    (part("a", b"\xff") + b"--cut--", "wrong", "the field a is no UTF-8"),
    (part("a", b"a", "\r\nContent-Transfer-Encoding: base64"), "wrong", "part a has a transfer encoding"),
    (part("a", b"a", "\r\nx: y" * 20), "wrong", "Maximum header count"),
    (part("a", b"a", "\r\nx: " + "y" * 9000), "wrong", "Maximum header size")])
def test_what_is_wrong_with_a_body(upload, body, reason, message):
    parts = FormParts(TYPE, "file", upload)
    with pytest.raises(Refusal, match=message) as error:     # noqa: PT012, either call may raise
        parts.feed(body)
        parts.end()
    assert error.value.reason == reason


def test_limits(upload):
    with pytest.raises(Limit, match="beside its file, has 66,"):
        FormParts(TYPE, "file", upload).feed(part("a", b"") * 65)
    with pytest.raises(Limit, match="one request may need 37,500"):
        FormParts(TYPE, "file", upload).feed(part("file", bytes(40_000)))
    memory = upload.room._memory
    Room(memory).hold(37_000)
    Room(memory).hold(37_000)
    with pytest.raises(Overloaded):
        FormParts(TYPE, "file", upload).feed(part("file", bytes(36_000)))
    for kind, reason in ((b"application/json", "type"), (b"", "type"), (b"multipart/form-data", "wrong"),
                         (b"multipart/form-data; boundary=" + b"a" * 300, "wrong")):
        with pytest.raises(Refusal) as error:
            FormParts(kind, "file", upload).feed(b"--cut\r\n")
        assert error.value.reason == reason, kind


def test_a_full_disk(upload, monkeypatch):
    class Full:
        def write(self, data):
            raise OSError(28, "No space left on device")

        def close(self):
            pass

    upload.close()
    monkeypatch.setattr(upload, "_file", Full())
    with pytest.raises(Refusal, match="No space left on device") as error:
        upload.write(b"a")
    assert error.value.reason == "full"


def test_no_descriptors_are_left(monkeypatch):
    def refuse(**options):
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    with pytest.raises(Refusal, match="Too many open files"):
        Upload(Memory(1), "")


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, len(WHOLE) - 1), st.binary(max_size=9), st.integers(0, 40)), max_size=6),
       st.integers(1, 300))
def test_damaged_bodies(upload, damage, size):
    """Whatever a body has, it is read or refused."""
    body = WHOLE
    for at, data, cut in damage:
        body = body[:at] + data + body[at + cut :]
    parts = FormParts(TYPE, "file", upload)
    with suppress(Refusal, Limit, Overloaded):
        for first in range(0, len(body), size):
            parts.feed(body[first : first + size])
        parts.end()


def test_who_has_taken_the_file_closes_it(upload):
    upload.write(b"abc")
    memory = upload.room._memory
    with upload.take() as file:
        upload.close()
        assert file.read() == b"abc"        # a worker may go on until its next step
        assert memory.used == 0
    with pytest.raises(Cancelled):
        upload.take()
    del file
    gc.collect()        # a file that nobody closes would warn
