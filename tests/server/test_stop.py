"""`engine serve` in a process of its own: it starts, stops in full flow, and says what is wrong with its options."""

import signal
import socket

import pytest

pytest.importorskip("uvicorn")

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
