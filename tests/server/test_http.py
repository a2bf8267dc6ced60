"""What goes wrong below the routes: keys, sizes, times, connections, a queue that is full, and results that fail."""

import asyncio
import gc
import hashlib
import json
import signal
import socket
import stat
import time
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from http.client import HTTPConnection
from threading import Barrier
from types import SimpleNamespace

import numpy as np
import pytest

from engine.base.errors import Closing, InputError, Overloaded, TimedOut

from ..tools.encoders import engine_of
from ..tools.tiny_models import random_model
from ..tools.tiny_text import tiny_text

pytest.importorskip("uvicorn")

from engine.server import app, event_loop
from engine.server.admission import Room
from engine.server.keys import ApiKeys
from engine.server.requests import Answer, Times
from engine.server.service import Service
from engine.server.settings import MAX_HEADER, MAX_HEADERS, Settings
from engine.server.start import address_of, bind, listen

from ..tools.serving import Client, raw, serving
from ..tools.threads import begin, together, wait_for

TEXT = "the cat sat, and nobody else may read it"
BODIES = {"/v1/embeddings": {"input": TEXT}, "/embed": {"inputs": TEXT}, "/v2/embed": {"texts": [TEXT]}}
"""One route of each family."""
FAMILIES = pytest.mark.parametrize("path", BODIES)
REQUEST = b"POST /embed HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"


@pytest.fixture(scope="module")
def model():
    return engine_of(random_model(tiny_text()), threads=1)


@pytest.fixture(scope="module")
def client(model):
    with serving(model) as client:
        yield client


class Scripted(Service):
    """A service whose answers a test makes: `script` gets the future of each request, and what was asked."""

    def __init__(self, model, script):
        self.script = None
        super().__init__(model)
        self.script = script

    def submit(self, task, inputs, options=None, *, key="", **rest):
        if self.script is None:
            return super().submit(task, inputs, options, key=key, **rest)
        future = Future()
        self.script(future, inputs, key)
        return future


def answer(value):
    return Answer(value, [1] * len(value), [False] * len(value), Times())


def raising(error):
    return lambda future, inputs, key: future.set_exception(error)


@FAMILIES
def test_a_key_is_needed(model, path):
    hashed = "sha256:" + "a" * 64
    with serving(model, keys=["# of nobody", "secret", hashed, " other "]) as client:
        for header in ("", "secret", "Bearer", "Bearer wrong", "Bearer secret2", "Bearer " + "a" * 64, "Basic secret"):
            found = client.post(path, BODIES[path], authorization=header)
            assert found.status == 401, header
            assert found.headers["www-authenticate"] == "Bearer"
            assert found.headers["content-type"] == "application/json"
        for header in ("Bearer secret", "bearer other", "BEARER  secret"):
            assert client.post(path, BODIES[path], authorization=header).status == 200
        for headers, status in (({"x_api_key": "other"}, 200), ({"x_api_key": "Bearer other"}, 401),
                                ({"x_api_key": "wrong"}, 401), ({"x_api_key": "other", "authorization": "wrong"}, 401),
                                ({"x_api_key": "wrong", "authorization": "Bearer other"}, 200)):
            assert client.post(path, BODIES[path], **headers).status == status, headers
        for page in ("/health", "/metrics", "/ping"):
            assert client.get(page).status == 200
        for page in ("/info", "/v1/models"):
            assert client.get(page).status == 401
            assert client.get(page, authorization="Bearer secret").status == 200


def test_keys_come_from_a_file(tmp_path):
    path = tmp_path / "keys"
    for text in ("", "# no key\n\n", "\xff"):
        path.write_text(text, encoding="latin-1")
        with pytest.raises(InputError, match="--api-key-file"):
            ApiKeys.read(str(path))
    with pytest.raises(InputError, match="absent"):
        ApiKeys.read(str(tmp_path / "absent"))
    for wrong in ("a", "a" * 63, "g" * 64, "a" * 64 + "  -"):
        with pytest.raises(InputError, match="key 1 begins with sha256"):
            ApiKeys(["one", f"sha256:{wrong}"])
    assert ApiKeys(["sha256:" + hashlib.sha256(b"one").hexdigest().upper()]).owner(b"Bearer one")
    path.write_text("one\ntwo\n")
    keys = ApiKeys.read(str(path))
    assert keys.owner(b"Bearer one") != keys.owner(b"Bearer two")
    assert len(keys.owner(b"Bearer one")) == 12
    assert "one" not in str(vars(keys))


@FAMILIES
def test_a_large_body_is_refused_and_the_connection_goes_on(model, path):
    with serving(model, max_body=1000) as client:
        assert client.post(path, BODIES[path]).status == 200
        for _ in range(2):
            found = client.post(path, b'"' + b"x" * 100_000)
            assert found.status == 413
            assert "1,000 bytes" in str(found.data)
        assert client.post(path, BODIES[path]).status == 200
        chunks = b"".join(b"400\r\n" + b" " * 1024 + b"\r\n" for _ in range(4)) + b"0\r\n\r\n"
        found = raw(client.port, b"POST %b HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\nconnection: close\r\n"
                    b"content-type: application/json\r\n\r\n" % path.encode(), chunks)
        assert found.startswith(b"HTTP/1.1 413 ")


def test_a_body_of_many_small_values_is_refused_before_it_is_read(model, monkeypatch):
    """Each of them takes far more memory than bytes, and reading them took ten seconds of the event loop."""
    with serving(model) as client:
        monkeypatch.setattr(app, "read_fields", None)
        found = client.post("/embed", b'{"inputs": [' + b"[5]," * 2_300_000 + b"[5]]}")
        assert found.status == 413
        assert "one request may need" in str(found.data)


def test_a_long_body_is_read_beside_the_event_loop(model):
    with serving(model) as client:
        found = client.post("/embed", {"inputs": ["x " * 40_000, "x"]})
        assert found.status == 200
        assert found.data[1] == client.post("/embed", {"inputs": "x"}).data[0]
        assert client.post("/embed", b'{"inputs": "' + b"x" * 70_000).status == 422


def test_a_short_body_of_many_values_is_read_beside_the_event_loop(client, monkeypatch):
    lanes, submit = [], client.served.service.workers.submit
    monkeypatch.setattr(client.served.service.workers, "submit", lambda call, **rest: lanes.append(
        rest["long"]) or submit(call, **rest))
    for body in ({"inputs": "x" * 50_000, "truncate": "no"}, {"inputs": [5] * 1000, "truncate": "no"}):
        client.post("/embed", body)
    assert not lanes
    assert client.post("/embed", {"inputs": [[5]] * 5000, "truncate": "no"}).status == 422
    assert lanes == [True]


def test_the_metrics_are_made_once_for_all_who_ask_at_once(client, monkeypatch):
    made, text = [], client.served.metrics.text
    monkeypatch.setattr(client.served.metrics, "text", lambda: made.append(1) or text())

    async def ask():
        return client.served.numbers(), client.served.numbers(), await asyncio.sleep(0), client.served.numbers()

    first, second, _, third = asyncio.run(ask())
    assert len(made) == 2
    assert first is second
    assert third
    assert client.get("/metrics").status == client.get("/metrics").status == 200
    assert len(made) == 4


def test_all_bodies_together_have_a_limit(model, monkeypatch):
    with serving(model) as client:
        memory = client.served.service.memory
        monkeypatch.setattr(memory, "most", 40_000)     # 15,000 for one request, and 30,000 for long ones
        with Room(memory) as one, Room(memory) as other:
            one.hold(14_000)
            other.hold(14_000)
            found = client.post("/decode", {"ids": [4] * 100})
            assert found.status == 429
            assert found.headers["retry-after"] == "1"
            assert client.post("/decode", {"ids": [4]}).status == 200
        assert client.post("/decode", {"ids": [4] * 100}).status == 200
        assert client.post("/tokenize", {"inputs": "the cat " * 10}).status == 413      # the answer is longer
        assert memory.used == 0


def test_many_small_headers_are_refused(client):
    some = b"".join(b"x%d:\r\n" % i for i in range(MAX_HEADERS + 2))
    head, end = b"GET /health HTTP/1.1\r\nconnection: close\r\n", b"\r\n"
    assert raw(client.port, head + some[: len(b"x1:\r\n") * 10] + end).startswith(b"HTTP/1.1 200 ")
    found = raw(client.port, head + some)       # before the headers are whole
    assert found.startswith(b"HTTP/1.1 431 ")
    assert b"more than 256 fields" in found


def test_a_large_header_is_refused(client):
    for lines in (b"x: " + b"a" * MAX_HEADER + b"\r\n", (b"x: " + b"a" * 200 + b"\r\n") * (MAX_HEADER // 200)):
        found = raw(client.port, b"GET /health HTTP/1.1\r\nhost: x\r\n" + lines + b"\r\n")
        assert found.startswith(b"HTTP/1.1 431 ")
        assert b"32,768" in found
    assert raw(client.port, b"GET /" + b"a" * 2 * MAX_HEADER).startswith(b"HTTP/1.1 431 ")
    assert client.get("/health").status == 200


@pytest.mark.parametrize("parts", [[b"0\r\n", b"a: b\r\n" * 100_000], [b"0\r\na: ", b"b" * 20 * MAX_HEADER],
                                   [b"5;", b"b" * 20 * MAX_HEADER]])
def test_what_stands_beside_a_body_in_chunks_has_a_limit(client, parts):
    head = b"POST /embed HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n1\r\n{\r\n"
    assert b"HTTP/1.1 431 " in raw(client.port, head, *parts)
    wait_for(lambda: client.served.service.memory.used == 0)


def test_trailers_are_read_over(client):
    body = b"c\r\n{\"inputs\": \"\r\n2\r\na\"\r\n1;x=y\r\n}\r\n0\r\na: b\r\n\r\n"
    found = raw(client.port, b"POST /embed HTTP/1.1\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n" + body)
    assert found.startswith(b"HTTP/1.1 200 ")


def test_an_offer_of_another_protocol_is_not_taken(client):
    body = b'{"inputs": "the cat"}'
    offer = b"connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABkAARAAAAAAAIAAAAA"
    one = (REQUEST % len(body)).replace(b"host: x", b"host: x\r\n" + offer) + body
    last = one.replace(b"Upgrade, HTTP2-Settings", b"close, Upgrade")
    for parts in ([one, last], [one[:-5], one[-5:] + last]):
        assert raw(client.port, *parts).count(b"HTTP/1.1 200 OK") == 2
    assert raw(client.port, b"CONNECT x:1 HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 400 ")


@FAMILIES
def test_a_slow_request_is_refused(model, path):
    with serving(model, header_seconds=0.3, body_seconds=0.3) as client:
        head = REQUEST.replace(b"/embed", path.encode()).replace(b"host: x", b"host: x\r\nconnection: close")
        assert raw(client.port, head[:20]).startswith(b"HTTP/1.1 408 ")
        found = raw(client.port, head % 50 + b'{"in')
        assert found.startswith(b"HTTP/1.1 408 ")
        assert b"0.3 s" in found
        body = json.dumps(BODIES[path]).encode()        # which comes with its head, and so in time on any machine
        assert raw(client.port, head % len(body) + body).startswith(b"HTTP/1.1 200 ")


def test_a_connection_without_a_request_ends(model):
    with serving(model, idle_seconds=0.3) as client:
        assert raw(client.port) == b""
    with serving(model, idle_seconds=2) as client:      # time for a request of a slow machine
        begun = time.monotonic()
        assert client.get("/health").status == 200
        assert raw(client.port, b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n").startswith(b"HTTP/1.1 200 ")
        assert time.monotonic() - begun < 20


@pytest.mark.parametrize("sent", [b"\x16\x03\x01\x02\x00", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n",
                                  b"\r\n" * 9 + b"x y",
                                  b"POST /embed HTTP/1.1\r\ncontent-length: x\r\n\r\n",
                                  b"POST /embed HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n"])
def test_what_is_no_http_is_refused(client, sent):
    found = raw(client.port, sent)
    assert found.startswith(b"HTTP/1.1 400 ")
    assert json.loads(found.partition(b"\r\n\r\n")[2])["error"]["message"]


def test_requests_may_follow_at_once(client):
    body = json.dumps({"inputs": "the cat"}).encode()
    one = REQUEST % len(body) + body
    last = one.replace(b"host: x", b"connection: close\r\nhost: x")
    found = raw(client.port, one * 3 + last)
    assert found.count(b"HTTP/1.1 200 OK") == 4


def test_requests_behind_one_without_an_answer_are_not_parsed(model):
    """Each of them would take far more memory than its bytes."""
    held = Scripted(model, lambda future, inputs, key: waiting.append(future))
    waiting, body = [], b'{"inputs": "the cat"}'
    with serving(model, service=held) as client:
        small, last = b"GET /health HTTP/1.1\r\n\r\n", b"GET /health HTTP/1.1\r\nconnection: close\r\n\r\n"
        sent = REQUEST % len(body) + body + small * 5000 + REQUEST % len(body) + body + small * 500 + last
        received = begin(lambda: raw(client.port, sent))
        for _ in range(2):
            wait_for(lambda: waiting)
            [connection] = client.server.server_state.connections
            wait_for(lambda: connection._unread)        # noqa: B023
            assert len(connection.pipeline) < 100
            assert connection.flow.read_paused or not connection._joined._may_read
            waiting.pop().set_result(answer(np.zeros((1, 4), np.float32)))
        assert received.result(30).count(b"HTTP/1.1 200 OK") == 5503


@FAMILIES
def test_the_type_of_a_body_must_be_json(client, path):
    def send(kind, body=None, **more):
        headers = {"content-type": kind} | {name.replace("_", "-"): value for name, value in more.items()}
        return client.send("POST", path, BODIES[path] if body is None else body, headers).status

    assert send("application/json; charset=UTF-8") == 200
    assert send("text/plain") == 415
    assert send("application/x-www-form-urlencoded") == 415
    assert send("application/json", content_encoding="gzip") == 415
    assert send("application/json; charset=utf-16", json.dumps(BODIES[path]).encode("utf-16")) in (400, 422)


@FAMILIES
def test_a_full_queue_a_stop_and_a_deadline(model, path):
    for error, status in ((Overloaded("2,000 tokens wait", 2.4), 429), (Closing(), 503), (TimedOut(), 504)):
        with serving(model, service=Scripted(model, raising(error))) as client:
            found = client.post(path, BODIES[path])
            assert found.status == status
            assert found.headers.get("retry-after") == ("3" if status == 429 else None)
    with serving(model, service=Scripted(model, lambda *_: None)) as client:
        found = client.post(path, BODIES[path], x_request_timeout=0.2)
        assert found.status == 504
        for wrong in ("x", "-1", "0", "nan", "inf"):
            assert client.post(path, BODIES[path], x_request_timeout=wrong).status in (400, 422)


@FAMILIES
def test_a_result_that_is_no_number_is_an_error_of_its_request_alone(model, path, monkeypatch):
    lines = []
    monkeypatch.setattr(app.logs, "write", lambda event, **fields: lines.append(fields))

    def script(future, inputs, key):
        if inputs[0] == TEXT:
            future.set_result(answer(np.full((1, 4), np.nan, np.float32)))
        elif inputs[0] == "raises":
            future.set_exception(ZeroDivisionError(TEXT))
        else:
            future.set_result(answer(np.ones((1, 4), np.float32)))

    def body(text):
        name, value = next(iter(BODIES[path].items()))
        return {name: text if isinstance(value, str) else [text]}

    with serving(model, service=Scripted(model, script)) as client:
        for text, failure in ((TEXT, "NotFinite"), ("raises", "ZeroDivisionError")):
            count = len(lines)
            found = client.post(path, body(text), x_request_id="mine-1")
            assert (found.status, found.headers["x-request-id"]) == (500, "mine-1")
            assert "mine-1" in str(found.data)
            assert TEXT not in str(found.data)
            wait_for(lambda before=count: len(lines) > before)
            assert lines[-1]["error"] == failure
            assert lines[-1]["places"]
        assert client.post(path, body("fine")).status == 200
    assert TEXT not in str(lines)


@FAMILIES
def test_a_client_that_has_gone_is_dropped(model, path):
    futures = []
    with serving(model, service=Scripted(model, lambda future, *_: futures.append(future))) as client:
        body = json.dumps(BODIES[path]).encode()
        with socket.create_connection(("127.0.0.1", client.port)) as connection:
            connection.sendall(REQUEST.replace(b"/embed", path.encode()) % len(body) + body)
            wait_for(lambda: futures)
        wait_for(futures[0].cancelled)
        wait_for(lambda: client.served.service.memory.used == 0)
        head = REQUEST.replace(b"/embed", path.encode()) % 1000
        with socket.create_connection(("127.0.0.1", client.port)) as connection:
            connection.sendall(head + b"{")
        wait_for(lambda: client.served.service.memory.used == 0 and len(client.server.server_state.tasks) == 0)
        assert len(futures) == 1


@pytest.mark.parametrize(("width", "requests"), [(2_000_000, 1), (50_000, 100)])
def test_a_client_that_reads_nothing_loses_its_connection(model, monkeypatch, width, requests):
    lines = []
    monkeypatch.setattr(app.logs, "write", lambda event, **fields: lines.append(fields))
    rows = np.ones((1, width), np.float32)
    service = Scripted(model, lambda future, *_: future.set_result(answer(rows)))
    with serving(model, service=service) as client, socket.socket() as connection:
        client.served.settings = replace(client.served.settings, idle_seconds=0.3)      # of answers, not of requests
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", client.port))
        connection.sendall((REQUEST % 14 + b'{"inputs":"x"}') * requests)
        wait_for(lambda: any(line["status"] == 499 for line in lines))
        wait_for(lambda: client.served.service.memory.used == 0 and not client.server.server_state.connections)


def test_many_idle_connections_do_not_stop_others(client):
    idle = [socket.create_connection(("127.0.0.1", client.port)) for _ in range(200)]
    try:
        assert client.post("/embed", BODIES["/embed"]).status == 200
    finally:
        for one in idle:
            one.close()


def test_a_stop_answers_what_was_accepted_and_refuses_the_rest(model):
    futures = []
    with serving(model, service=Scripted(model, lambda future, *_: futures.append(future))) as client:
        other = Client(client.port)
        found = begin(lambda: other.post("/embed", BODIES["/embed"]))
        wait_for(lambda: futures)
        keeping = HTTPConnection("127.0.0.1", client.port)
        client.served.closing = True
        refused = client.post("/embed", BODIES["/embed"])
        assert (refused.status, refused.headers["retry-after"]) == (503, "1")
        assert client.get("/health").status == 503
        client.server.stop()
        futures[0].set_result(answer(np.ones((1, 4), np.float32)))
        assert found.result(60).status == 200
        other.close()
        keeping.close()


def test_a_second_sigint_refuses_what_has_no_answer(model):
    futures = []
    with serving(model, service=Scripted(model, lambda future, *_: futures.append(future))) as client:
        found = begin(lambda: client.post("/embed", BODIES["/embed"]))
        wait_for(lambda: futures)
        client.server.handle_exit(signal.SIGINT, None)
        client.server.handle_exit(signal.SIGINT, None)
        refused = found.result(60)
    assert refused.status == 503
    assert "stops" in refused.data["error"]


def test_logs_have_no_texts(client, monkeypatch):
    lines = []
    monkeypatch.setattr(app.logs, "write", lambda event, **fields: lines.append(fields))
    client.post("/embed", BODIES["/embed"])
    client.post("/embed", {"inputs": [TEXT, 5]})
    client.post("/embed", {"inputs": TEXT, TEXT: 1})
    client.get("/embed?text=cat")
    wait_for(lambda: len(lines) == 3)
    assert [line["status"] for line in lines] == [200, 422, 422]
    assert "cat" not in str(lines)


def test_metrics_have_the_names_of_tei(model):
    with serving(model) as client:
        client.post("/embed", BODIES["/embed"])
        client.post("/embed", {"inputs": [TEXT, TEXT]})
        client.post("/embed", {"inputs": []})
        found = client.get("/metrics")
    text = found.data.decode()
    assert found.headers["content-type"].startswith("text/plain; version=0.0.4")
    for line in ('te_request_count{method="single"} 1.0', 'te_request_count{method="batch"} 1.0',
                 'te_request_success{method="batch"} 1.0', 'te_request_failure{err="empty"} 1.0', "te_embed_count 2.0",
                 "te_embed_success 2.0", "te_predict_count 0.0", "te_request_duration_count 2.0",
                 'te_request_duration_bucket{le="+Inf"} 2.0', "te_request_input_length_count 3.0", "te_queue_size 0.0",
                 'te_batch_next_size_bucket{le="+Inf"} 4.0', "te_batch_next_size_count 4.0",
                 'engine_rejected_total{reason="late"} 0.0', 'engine_model_info{model="tiny"} 1.0'):
        assert f"\n{line}\n" in text, line
    for name in ("te_request_tokenization_duration", "te_embed_queue_duration", "te_predict_inference_duration",
                 "te_batch_next_size", "te_batch_next_tokens", "engine_tokens", "engine_busy_seconds"):
        assert f"# TYPE {name}" in text


def test_answers_have_the_times_of_tei(client):
    headers = client.post("/embed", {"inputs": ["the cat", "a"]}).headers
    assert headers["x-compute-type"] == "cpu"
    assert headers["x-compute-characters"] == "8"
    for name in ("x-compute-tokens", "x-compute-time", "x-total-time", "x-tokenization-time", "x-queue-time",
                 "x-inference-time"):
        assert headers[name].isdecimal(), name


def test_sockets(tmp_path):
    path = tmp_path / "socket"
    with bind(Settings(uds=str(path))) as one:
        one.listen()
        assert address_of(one) == f"unix:{path}"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert "another server has it" in refused(uds=str(path))
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").touch()
    assert "no socket" in refused(uds=str(tmp_path / "file"))
    assert "empty" in refused(uds="")
    with socket.socket(socket.AF_UNIX) as other:        # of a program that locks no file
        other.bind(str(path))
        other.listen()
        assert "another server listens there" in refused(uds=str(path))
    with bind(Settings(port=0)) as one:
        one.listen()
        assert "--port" in refused(port=one.getsockname()[1])
    assert "--host" in refused(host="no such host.invalid")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["file", "socket"]


def refused(**settings):
    with pytest.raises(InputError) as error, bind(Settings(**settings)):
        pass
    return str(error.value)


def test_servers_that_start_at_once_on_one_socket(tmp_path):
    """One of them has it, although there is the socket of a server that died; the others end with an error."""
    path, count = tmp_path / "socket", 8
    for _ in range(10):
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(path))
        begin, end, bound, errors = Barrier(count), Barrier(count), [], []

        def start(begin=begin, end=end, bound=bound, errors=errors):
            begin.wait()
            try:
                with bind(Settings(uds=str(path))) as one:
                    one.listen()
                    bound.append(path.stat().st_ino)
                    end.wait()
            except InputError as error:
                errors.append(str(error))
                end.wait()

        together([start] * count)
        assert len(bound) == 1
        assert errors == [f"--uds {path}: another server has it; choose another path"] * (count - 1)
        assert list(tmp_path.iterdir()) == []


def test_servers_that_start_at_once_on_one_port():
    """Both may bind it until one of them listens."""
    with bind(Settings(port=0)) as one:
        own = Settings(port=one.getsockname()[1])
        with bind(own) as two:
            listen(two, own)
            with pytest.raises(InputError, match=r"--port \d+ cannot be bound: .*in use"):
                listen(one, own)


@pytest.mark.parametrize("wrong", [{"port": -1}, {"port": 65536}, {"timeout": 0}, {"max_wait": float("nan")},
                                   {"max_body": 0}, {"max_batch_tokens": 0}])
def test_settings_are_checked(wrong):
    with pytest.raises(InputError, match="--"):
        Settings(**wrong)


def test_pages_and_their_refusals_have_an_id_and_are_counted(model):
    with serving(model, keys=["secret"]) as client:
        for path, status, reason in (("/info", 401, "key"), ("/nowhere", 404, "path"), ("/embed", 405, "method"),
                                     ("/v1/models/none", 401, "key"), ("/health", 200, None)):
            found = client.get(path, **{"x-request-id": "mine-7"})
            assert (found.status, found.headers["x-request-id"]) == (status, "mine-7"), path
            if reason is not None:
                assert f'te_request_failure{{err="{reason}"}}' in client.get("/metrics").data.decode()


def test_ids_of_a_request_to_decode_have_a_limit(client, monkeypatch):
    monkeypatch.setattr("engine.server.tei.MAX_DECODED", 3)
    assert client.post("/decode", {"ids": [[5, 6], [7]]}).status == 200
    found = client.post("/decode", {"ids": [[5, 6], [7, 8]]})
    assert found.status == 413
    assert "4 token ids, and at most 3" in found.data["error"]


def test_an_empty_name_of_the_model_is_refused():
    with pytest.raises(InputError, match="--served-model-name"):
        Settings(names=("",))


def test_a_full_queue_refuses_before_a_text_is_tokenized(model, monkeypatch):
    with serving(model, max_wait=0.5) as client:
        service = client.served.service
        monkeypatch.setattr(service._queue, "_measured", (1.0, 1.0))        # a token a second
        monkeypatch.setattr(service._queue, "in_flight", 10)
        service._tasks["embed"] = None      # which nobody calls
        found = client.post("/embed", {"inputs": TEXT})
        assert (found.status, found.data["error_type"]) == (429, "Overloaded")
        assert int(found.headers["retry-after"]) >= 9


def test_the_loop_rests_while_the_model_has_much_to_do(monkeypatch):
    rests = []
    monkeypatch.setattr(event_loop.time, "sleep", rests.append)
    service = SimpleNamespace(backlog=0.0)
    rest = event_loop.Rest(lambda: service.backlog)
    for backlog in (0.0, 0.05, 0.4, 100.0):
        service.backlog = backlog
        rest._rest()
    assert rests == [0.4 * event_loop.REST, event_loop.LONGEST_REST]


def test_an_alarm_comes_once_and_at_its_last_time():
    async def called():
        calls, alarm, now = [], event_loop.Alarm(), time.monotonic()
        for due, name in ((0.01, "body"), (0.05, "answer")):
            alarm.set(now + due, partial(calls.append, name))
        while not alarm.rang:
            await asyncio.sleep(0.01)
        for due, name in ((60, "far"), (0.01, "near")):
            alarm.set(time.monotonic() + due, partial(calls.append, name))
        while not alarm.rang:
            await asyncio.sleep(0.01)
        alarm.set(time.monotonic() + 0.01, partial(calls.append, "unset"))
        alarm.unset()
        await asyncio.sleep(0.05)
        alarm.end()
        return calls, alarm.rang

    assert asyncio.run(called()) == (["answer", "near"], False)


LARGE = "the cat " * 30_000


@pytest.mark.parametrize(("path", "body"), [
    ("/embed", {"inputs": LARGE, "x": LARGE}), ("/embed", {"x": LARGE}), ("/embed", {"inputs": [LARGE, 5]}),
    ("/embed", {"inputs": [LARGE], "truncate": False}), ("/v1/embeddings", {"input": [LARGE] * 3, "truncate": LARGE}),
    ("/tokenize", {"inputs": [LARGE] * 2}), ("/embed", {"inputs": LARGE, "dimensions": 10**6})])
def test_a_body_that_is_refused_leaves_nothing_to_the_garbage_collector(client, path, body):
    """It counts objects and not bytes, so that hundreds of megabytes of bodies could wait for it."""
    client.post(path, body)
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        assert client.post(path, body).status >= 400
        wait_for(lambda: client.served.service.memory.used == 0)
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        kept = [one for garbage in gc.garbage for one in gc.get_referents(garbage) if isinstance(one, (str, bytes))]
        assert all(len(one) < len(LARGE) for one in kept)
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
        gc.unfreeze()
