"""`engine serve` in a process of its own: it starts, stops in full flow, and says what is wrong with its options."""

import hashlib
import os
import re
import select
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack

import pytest

pytest.importorskip("uvicorn")
pytest.importorskip("jinja2")
pytest.importorskip("soundfile")

from engine.base.errors import InputError
from engine.cli import serve
from engine.cli.main import parsers
from engine.loading import load

from ..tools.paths import ROOT
from ..tools.serving import Client
from ..tools.threads import wait_for
from .stopping import Process, once, write_model, write_models


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("served"))


@pytest.mark.parametrize("signals", [(signal.SIGTERM,), (signal.SIGINT, signal.SIGINT)])
def test_a_stop_in_full_flow_answers_what_was_accepted(tmp_path, signals):
    assert once(write_models(tmp_path), 0, *signals)["200"] > 0


def test_options(model, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("secret\n")
    process = Process([model], "--api-key-file", str(keys), "--served-model-name", "a", "--served-model-name", "b",
                      "--max-body-bytes", "100", "--timeout", "5", "--max-wait", "1", "--max-batch-tokens", "64",
                      descriptors=64)
    client = Client(process.port)
    try:
        assert client.get("/health").status == 200
        assert client.post("/embed", {"inputs": "cat"}).status == 401
        options = {"authorization": "Bearer secret"}
        for name in ("a", "b"):
            assert client.post("/embed", {"inputs": "cat", "model": name}, **options).status == 200
        assert client.post("/embed", {"inputs": "c" * 100}, **options).status == 413
        info = client.get("/info", **options).data
        # More connections than descriptors: those that wait end for new ones, and the log says so.
        with ExitStack() as stack:
            for _ in range(80):
                stack.enter_context(socket.create_connection(("127.0.0.1", process.port)))
            client.close()
            assert client.get("/health").status == 200
            wait_for(lambda: any("connections are open" in line for line in process.lines))
        assert not any("out of system resource" in line for line in process.lines)
        assert sum("connections are open" in line for line in process.lines) < 20
        assert (info["served_model_name"], info["max_batch_tokens"], info["payload_limit"]) == ("a", 64, 100)
    finally:
        client.close()
        status, lines = process.stop(signal.SIGINT)
    assert status == 0
    assert lines[0]["descriptors"] == 64
    assert 1 < lines[0]["connections"] < 50
    assert [line["event"] for line in lines if line["event"] != "log"] == ["start", *["request"] * 4, "stop"]
    assert "secret" not in str(lines)


def test_two_servers_that_start_at_once_on_one_socket(model, tmp_path):
    """The socket of a dead server lies there. One of them serves, and the other one ends with an error."""
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    with ExitStack() as stack:
        both = [stack.enter_context(subprocess.Popen(
            [sys.executable, "-m", "engine", "serve", str(model), "--uds", str(path)], stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)})) for _ in range(2)]
        for one in both:
            stack.callback(one.kill)
        wait_for(lambda: any(one.poll() is not None for one in both))
        loser, winner = sorted(both, key=lambda one: one.poll() is None)
        assert (loser.returncode, loser.stdout.read()) == (1, "")
        assert f"--uds {path}: another server has it; choose another path" in loser.stderr.read()
        assert winner.stdout.readline() == f"{model.name} is served at unix:{path}\n"
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
            client.sendall(b"GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
            assert client.recv(2**16).startswith(b"HTTP/1.1 200 ")
        winner.send_signal(signal.SIGTERM)
        assert winner.wait(60) == 0
    assert list(tmp_path.iterdir()) == []


def lost_lines(path):
    """Return how many lines of the log a server has lost."""
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
        client.sendall(b"GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        found = b""
        while data := client.recv(2**16):
            found += data
    return float(re.search(rb"\nengine_log_lines_lost_total (\S+)", found)[1])


@pytest.mark.parametrize("streams", ["2>&- >&- <&-", "2>&3 >/dev/full"])
def test_a_log_that_cannot_be_written_changes_nothing(model, tmp_path, streams):
    """A full disk, closed descriptors, and a pipe that is full and that nobody reads."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with ExitStack() as stack:
        stack.callback(os.close, reader)
        while select.select([], [writer], [], 0)[1]:
            os.write(writer, bytes(2**12))
        os.set_blocking(writer, True)
        path = tmp_path / "socket"
        server = stack.enter_context(subprocess.Popen(
            ["bash", "-c", f"exec \"$@\" 3>&{writer} {streams}", "-", sys.executable, "-m", "engine", "serve",
             str(model), "--uds", str(path), "--threads", "1"], pass_fds=[writer], stdout=subprocess.DEVNULL, cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT)}))
        stack.callback(server.kill)
        os.close(writer)
        body = b'{"inputs": "cat"}'
        request = b"POST /embed HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
        wait_for(path.exists)
        with socket.socket(socket.AF_UNIX) as client:
            wait_for(lambda: client.connect_ex(str(path)) == 0)
            for _ in range(3):
                client.sendall(request % (len(body), body))
                assert client.recv(2**16).startswith(b"HTTP/1.1 200 ")
        # The thread of the log counts them in its own time; those for the pipe still wait for a reader.
        wait_for(lambda: lost_lines(path) >= (0 if "2>&3" in streams else 4))
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
            client.sendall(b"no request\r\n\r\n")
            assert client.recv(2**16).startswith(b"HTTP/1.1 400 ")
        server.send_signal(signal.SIGTERM)
        assert server.wait(30) == 0


def settings(*options):
    args = parsers()[1]["serve"].parse(options)
    return serve._settings(args, serve._all_names(args)[0])


def test_the_name_of_a_model_is_the_last_part_of_its_path(tmp_path):
    for path in (f"{tmp_path}/a/b/", f"{tmp_path}/a/c/../b"):
        found = settings(path)
        assert (found.names, found.silent_names) == (("b",), (path,))
    found = settings(os.fsdecode(f"{tmp_path}/".encode() + b"m\xff"))
    assert found.names == ("m\ufffd",)
    assert (settings("some-org/some-name").names, settings("/").names) == (("some-org/some-name",), ("model",))
    assert settings("some-org/some-name").silent_names == ("some-name",)
    found = settings(str(tmp_path), "--served-model-name", "text-embedding-3-small", "--served-model-name", "x")
    assert (found.names, found.silent_names) == (("text-embedding-3-small", "x"), ())
    with pytest.raises(InputError, match=r"--served-model-name .*no UTF-8"):
        settings(str(tmp_path), "--served-model-name", os.fsdecode(b"\xff"))


@pytest.mark.parametrize("options", [(), ("--max-text-tokens", "9000")])
def test_the_files_of_a_model_are_opened_once(model, monkeypatch, options):
    opened, open_path = [], load._open
    monkeypatch.setattr(load, "_open", lambda *given: opened.append(given) or open_path(*given))
    serve._model(parsers()[1]["serve"].parse([str(model), *options]), str(model)).close()
    assert len(opened) == 1


def test_keys_of_the_variable(model, tmp_path, monkeypatch):
    """They hold beside those of the file, and a variable without a key lets nobody in."""
    found = []
    monkeypatch.setattr(serve, "_run", lambda models, names, settings, keys, listener: found.append(keys))
    monkeypatch.setattr(serve, "_model", lambda args, path: None)
    (tmp_path / "keys").write_text("one\n")

    def start(*options):
        serve.serve(parsers()[1]["serve"].parse([str(model), "--port", "0", *options]))
        return [bool(found[-1].owner(b"Bearer " + key)) for key in (b"one", b"two", b"three")]

    monkeypatch.setenv("ENGINE_API_KEY", " two\n")
    assert start() == [False, True, False]
    assert start("--api-key-file", str(tmp_path / "keys")) == [True, True, False]
    monkeypatch.setenv("ENGINE_API_KEY", "sha256:" + hashlib.sha256(b"three").hexdigest())
    assert start() == [False, False, True]
    for wrong in ("", "  ", "# two", "one\ntwo", os.fsdecode(b"\xff"), "sha256:5"):
        monkeypatch.setenv("ENGINE_API_KEY", wrong)
        with pytest.raises(InputError, match=r"ENGINE_API_KEY|sha256"):
            start()
    monkeypatch.delenv("ENGINE_API_KEY")
    start()
    assert found[-1].owner(b"") == ""
