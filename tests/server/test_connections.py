"""How many connections a server has at one time, and which ones end for others."""

import os
import select
import socket
from concurrent.futures import Future
from contextlib import ExitStack

import pytest

pytest.importorskip("uvicorn")

from engine.server.connections import Connections
from engine.server.settings import CONNECTIONS
from engine.server.start import connections_of

from ..tools.encoders import engine_of
from ..tools.serving import raw, serving
from ..tools.threads import wait_for
from ..tools.tiny_models import random_model
from ..tools.tiny_text import tiny_text

ONE = (b"POST /embed HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 14\r\n\r\n"
       b'{"inputs":"x"}')


@pytest.fixture(scope="module")
def model():
    return engine_of(random_model(tiny_text()), threads=1)


class Fake:
    def __init__(self):
        self.ended = False

    def end(self):
        self.ended = True


def test_the_connection_that_waits_longest_ends_for_a_new_one():
    room, ones = Connections(3), [Fake() for _ in range(6)]
    assert all(map(room.add, ones[:3]))
    room.set_idle(ones[0], False)       # it has a request
    room.set_idle(ones[1], False)
    room.set_idle(ones[1], True)        # and this one has had one
    assert room.add(ones[3])
    assert [one.ended for one in ones[:4]] == [False, False, True, False]
    assert room.add(ones[4])
    assert ones[1].ended
    for one in ones:
        room.set_idle(one, False)
    assert not room.add(ones[5])
    room.remove(ones[0])
    assert room.add(ones[5])
    assert not ones[0].ended


def test_the_limits_leave_descriptors_for_what_else_is_open():
    others = len(os.listdir("/proc/self/fd"))
    for descriptors in (others + 60, 1024, 4096):
        most, taken = connections_of(descriptors)
        assert 1 <= taken <= 64
        assert 1 <= most <= descriptors - others - 8 * taken
    assert connections_of(2**20)[0] == CONNECTIONS
    assert connections_of(8) == (1, 1)


def test_more_clients_than_connections(model):
    """Those that wait end for new ones; where all have a request, a new one is refused at once."""
    with serving(model, connections=4) as client, ExitStack() as stack:
        idle = [stack.enter_context(socket.create_connection(("127.0.0.1", client.port), timeout=30)) for _ in range(9)]
        assert client.get("/health").status == 200
        assert [one.recv(1) for one in idle[:5]] == [b""] * 5
        client.close()
        wait_for(lambda: len(client.server.server_state.connections) == 3)
        client.served.service.submit = lambda *_, **__: pytest.fail("no answer is wanted")
        busy = [stack.enter_context(socket.create_connection(("127.0.0.1", client.port), timeout=30)) for _ in range(4)]
        for one in busy:
            one.sendall(ONE[:-1])       # the body is not whole
        wait_for(lambda: all(cycle.cycle is not None for cycle in client.server.server_state.connections))
        found = raw(client.port)
        assert found.startswith(b"HTTP/1.1 503 ")
        assert b"no room for another connection" in found
        busy.pop().close()
        wait_for(lambda: len(client.server.server_state.connections) == 3)
        assert client.get("/health").status == 200


def test_a_refused_connection_is_read_no_further(model):
    """Behind a request that has no answer yet come bytes without end that are no request."""
    with serving(model) as client, socket.create_connection(("127.0.0.1", client.port), timeout=30) as connection:
        futures, submit = [], client.served.service.submit

        def wait(*args, **options):     # until the test lets the answer go
            futures.append((Future(), submit(*args, **options)))
            return futures[-1][0]

        client.served.service.submit = wait
        connection.sendall(ONE + b"no request\r\n\r\n")
        wait_for(lambda: futures)
        sent, limit = 0, 100_000_000
        while sent < limit and select.select([], [connection], [], 0.2)[1]:
            sent += connection.send(bytes(2**16))
        assert sent < limit
        future, answer = futures[0]
        future.set_result(answer.result())
        assert connection.recv(2**16).startswith(b"HTTP/1.1 200 ")
        wait_for(lambda: not client.server.server_state.connections)


def test_an_answer_that_ends_a_connection_and_that_nobody_reads(model):
    """What is left of it does not keep the connection open for ever."""
    with serving(model) as client, socket.socket() as connection:
        wait_for(lambda: client.server.started)
        client.server.servers[0].sockets[0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", client.port))
        wait_for(lambda: client.server.server_state.connections)
        [protocol] = client.server.server_state.connections
        protocol.timeout_keep_alive = 0.3       # after the request, which a slow machine sends late
        body = b'{"inputs":"' + b"x " * 3000 + b'"}'     # whose answer is handed over at once
        connection.sendall(b"POST /tokenize HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json"
                           b"\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
        assert connection.recv(10) == b"HTTP/1.1 2"
        wait_for(lambda: not client.server.server_state.connections)


@pytest.mark.parametrize("version", [b"1.0", b"0.9", b"2.0"])
def test_chunks_need_http_1_1(model, version):
    """A proxy that does not know them in an older request takes the body for the next request."""
    with serving(model) as client:
        found = raw(client.port, b"POST /embed HTTP/%b\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n" % version,
                    b"e\r\n" + ONE[-14:] + b"\r\n0\r\n\r\n")
        assert found.startswith(b"HTTP/1.1 400 ")
        if version == b"1.0":
            assert b"a body in chunks needs HTTP/1.1, and this request is HTTP/1.0" in found
        assert raw(client.port, ONE.replace(b"1.1", b"1.0")).startswith(b"HTTP/1.1 200 ")
