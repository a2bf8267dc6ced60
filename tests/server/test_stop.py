"""`engine serve` in a process of its own: it starts, stops in full flow, and says what is wrong with its options."""

import os
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack

import pytest

pytest.importorskip("uvicorn")

from ..tools.paths import ROOT
from ..tools.serving import Client, wait_for
from .stopping import Process, once, write_model


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("served"))


def test_a_stop_in_full_flow_answers_what_was_accepted(model):
    assert once(model, seed=0)["200"] > 0


def test_options(model, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("secret\n")
    process = Process(model, "--api-key-file", str(keys), "--served-model-name", "a", "--served-model-name", "b",
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
        # More connections than descriptors: the others wait, and the log says so.
        idle = [socket.create_connection(("127.0.0.1", process.port)) for _ in range(80)]
        wait_for(lambda: any("out of system resource" in line for line in process.lines))
        for one in idle:
            one.close()
        assert client.get("/health").status == 200
        assert (info["served_model_name"], info["max_batch_tokens"], info["payload_limit"]) == ("a", 64, 100)
    finally:
        client.close()
        status, lines = process.stop(signal.SIGINT)
    assert status == 0
    assert lines[0]["descriptors"] == 64
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
        assert winner.stdout.readline() == f"{model} is served at unix:{path}\n"
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
            client.sendall(b"GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
            assert client.recv(2**16).startswith(b"HTTP/1.1 200 ")
        winner.send_signal(signal.SIGTERM)
        assert winner.wait(60) == 0
    assert list(tmp_path.iterdir()) == []
