"""The log of a server: lines in their order while somebody reads them, and lost lines otherwise, and nothing else."""

import errno
import json
import logging
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

from ..tools.paths import ROOT

pytest.importorskip("uvicorn")

from engine.server import logs
from engine.server.logs import JsonLines, Writer

from ..tools.threads import wait_for

LINES = [b"line %d\n" % i for i in range(5000)]


@pytest.fixture
def pipe():
    reader, writer = os.pipe()
    yield reader, writer
    for descriptor in (reader, writer):
        with suppress(OSError):     # a test may have closed it
            os.close(descriptor)


@pytest.fixture
def written(monkeypatch):
    """Return the list of the lines that the log gets, as values of JSON."""
    lines = []
    monkeypatch.setattr(logs, "WRITER", SimpleNamespace(
        write=lambda data: lines.append(json.loads(data)), lose=lambda count=1: lines.append(count)))
    return lines


def test_a_reader_that_stalls_loses_later_lines(pipe):
    reader, descriptor = pipe
    writer = Writer(descriptor, most=100_000)
    many = [b"%d\n" % i for i in range(50_000)]
    for line in many:
        writer.write(line)      # more than the pipe and the queue hold
    assert writer.lost > 0
    assert not writer.wait(0.01)
    lost = writer.lost
    kept = len(many) - lost
    with open(reader, "rb", closefd=False) as file:
        found = [file.readline() for _ in range(kept)]
    assert found[:5000] == many[:5000]
    assert found == sorted(set(found), key=int)
    assert writer.wait(30)
    writer.write(b"later\n")
    assert os.read(reader, 100) == b"later\n"
    assert writer.lost == lost


def test_a_pipe_that_nobody_reads_from_and_a_full_disk_lose_lines(pipe):
    reader, descriptor = pipe
    os.close(reader)
    with open("/dev/full", "wb", buffering=0) as full:
        for writer in (Writer(descriptor), Writer(full.fileno())):
            for line in LINES[:10]:
                writer.write(line)
            assert writer.wait(30)
            assert writer.lost == 10
    os.close(descriptor)        # no descriptor any more
    writer = Writer(descriptor)
    writer.write(b"one\n")
    assert writer.wait(30)
    assert writer.lost == 1


def test_a_line_after_a_torn_one_begins_on_its_own(monkeypatch):
    """A disk that is full has room for a part of a line, and later for more."""
    found = []

    def write(descriptor, data):
        if len(found) == 1:
            found.append(b"")
            raise OSError(errno.ENOSPC, "")
        part = data[:10] if not found else data
        found.append(bytes(part))
        return len(part)

    writer = Writer()
    monkeypatch.setattr(logs.os, "write", write)
    assert writer._put(b"abc\ndefghijkl\nmn\n") == 2
    assert writer._put(b"op\n") == 0
    assert b"".join(found) == b"abc\ndefghi\nop\n"


def test_a_descriptor_that_does_not_block_is_waited_for(pipe):
    reader, descriptor = pipe
    os.set_blocking(descriptor, False)
    writer = Writer(descriptor)
    for line in LINES * 2:
        writer.write(line)
    found = b""
    while found.count(b"\n") < 2 * len(LINES):
        found += os.read(reader, 2**16)
    assert found == b"".join(LINES * 2)
    assert writer.lost == 0


def test_standard_error_that_was_closed_at_the_start_loses_lines(monkeypatch):
    monkeypatch.setattr(sys, "__stderr__", None)
    writer = Writer()
    writer.write(b"one\n")
    assert (writer.lost, writer._thread) == (1, None)


def test_a_message_that_repeats_has_a_line_a_second(written, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(logs.time, "monotonic", lambda: now[0])
    logger, handler = logging.Logger("asyncio"), JsonLines()
    logger.addHandler(handler)
    for i in range(1000):
        now[0] = 100 + i / 500
        try:
            raise OSError(errno.EMFILE, "too many open files")
        except OSError:
            logger.exception("no socket for %d at 0x%x", i, 77 * i)
        handler.report(now[0])
    logger.error("another message")
    counts = [line.get("left_out", 0) for line in written]
    assert len(written) == 3
    assert counts[0] == counts[2] == 0
    assert counts[1] == 499
    assert (written[0]["error"], written[0]["logger"], written[0]["level"]) == ("OSError", "asyncio", "error")
    handler.report()
    assert written[-1]["left_out"] == 499
    assert written[-1]["message"].startswith("no socket for 999 at 0x")


def test_messages_that_are_many_have_a_bound(written):
    handler = JsonLines()
    for i in range(1000):
        handler.write("error", "a", chr(0x4e00 + i))
    handler.write("error", "a", chr(0x4e00))    # left out
    for i in range(1000, 2000):
        handler.write("error", "a", chr(0x4e00 + i))
    assert [line for line in written if isinstance(line, int)] == [0] * 999 + [1]
    assert len(handler._repeats) == 1000


def test_bytes_that_are_no_utf_8_are_written_as_escapes(written):
    logs.write("start", place=os.fsdecode(b"/a\xff"), other=Path("/b"))
    assert (written[0]["place"], written[0]["other"]) == ("/a\udcff", "/b")


def test_a_record_that_cannot_be_written_is_counted(written):
    JsonLines().emit(logging.LogRecord("a", logging.ERROR, "", 0, "%d", ("no number",), None))
    assert written == [1]


def test_warnings_and_uncaught_errors_are_lines():
    """In a process of its own, as they change it for all of its time."""
    script = """
import threading, warnings
from engine.server import logs
logs.log_as_json()
warnings.warn("careful")
thread = threading.Thread(target=lambda: 1 / 0)
thread.start(); thread.join()
class A:
    def __del__(self): raise KeyError
A()
logs.announce("hello")
logs.end()
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, check=True)
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert [(line["level"], line.get("error")) for line in lines] == [
        ("warning", None), ("error", "ZeroDivisionError"), ("error", "KeyError")]
    assert lines[0]["message"] == "careful"
    assert done.stdout == "hello\n"


def test_the_end_writes_what_waits_and_does_not_wait_for_a_stalled_reader(pipe, monkeypatch):
    reader, descriptor = pipe
    os.set_blocking(descriptor, False)
    while True:
        try:
            os.write(descriptor, b"x" * 2**16)
        except BlockingIOError:
            break
    os.set_blocking(descriptor, True)
    monkeypatch.setattr(logs, "WRITER", Writer(descriptor))
    monkeypatch.setattr(logs, "_END_SECONDS", 0.05)
    logs.WRITER.write(b"one\n")
    logs.end()      # comes back
    while not os.read(reader, 2**20).endswith(b"one\n"):
        pass
    wait_for(lambda: logs.WRITER.wait(0))
