"""Clients that end their connections anywhere: their rows are free within a step, and no other byte changes.

More clients than `make test` has:

    ENGINE_LEFT_CLIENTS=1000 python -m pytest tests/server/test_leaving.py
"""

import json
import os
import random
import socket
import struct
import threading
import time
from functools import partial

import pytest

pytest.importorskip("uvicorn")
pytest.importorskip("jinja2")

from ..tools.serving import Client, serving
from ..tools.text_models import HELLO, text_model
from ..tools.threads import together, wait_for
from .bodies import CHAT, COMPLETE, events, joined, whole, without_time

LEFT = int(os.environ.get("ENGINE_LEFT_CLIENTS", "48"))
LEAVERS, OTHERS = 8, 4
KINDS = ("before admission", "in the queue", "in a prompt", "in a stream", "in a body", "in its request")
LONG = {"max_tokens": 200, "ignore_eos": True, "temperature": 1}
"""The settings of an answer that lasts longer than any of these clients stays."""


class Watched:
    """Notes when each work is cancelled, and the works that a step still has when another one lies between."""

    def __init__(self, queue, monkeypatch):
        self.steps, self.stayed = 0, []
        self._cancelled = {}        # by the entry of each work: the steps until it was cancelled
        cancel, step = queue.cancel, queue._stepper.step

        def noted(given):
            entry = getattr(given, "entry", given)
            cancel(given)
            self._cancelled.setdefault(entry, self.steps)

        def stepped(rows, stop):
            self.steps += 1
            self.stayed += [work for work in queue._active
                            if self._cancelled.get(work.entry, self.steps) < self.steps - 1]
            return step(rows, stop)

        monkeypatch.setattr(queue, "cancel", noted)
        monkeypatch.setattr(queue._stepper, "step", stepped)


def requests(rng):
    """Return requests whose answers are compared with those that they get alone."""
    for seed in range(6):
        given = {"seed": seed, "max_tokens": rng.choice((4, 30)), "n": rng.choice((1, 2)), "logprobs": None}
        yield CHAT, {"messages": HELLO, "stream": seed % 2 == 0} | given
        yield COMPLETE, {"prompt": "the cat " * rng.randrange(1, 20), "stream": seed % 2 == 1} | given


def leave(port, rng, kind, number):
    """Send a request, end the connection in a place of a kind, and return whether it was ended with FIN."""
    content = "b" * rng.randrange(150, 200) if kind == "in a prompt" else f"{number}"
    body = {"messages": [{"role": "user", "content": content}], "seed": number} | LONG
    body |= {"stream": kind == "in a stream", "n": 6 if kind == "in the queue" else 1}
    data = json.dumps(body).encode()
    sent = data[: rng.randrange(len(data))] if kind == "in its request" else data
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(b"POST %b HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: %d"
                           b"\r\n\r\n%b" % (CHAT.encode(), len(data), sent))
        if kind == "in a stream":
            found, reads = b"", rng.randrange(1, 8)
            while found.count(b"data: ") < reads:
                part = connection.recv(2**16)
                assert part, found
                found += part
        elif kind != "before admission":
            time.sleep(rng.random() * 0.02)
        if orderly := rng.random() < 0.7:
            connection.shutdown(socket.SHUT_WR)
        else:       # a reset
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    return orderly


def test_rows_of_those_who_leave_are_free_within_a_step_and_no_byte_of_others_changes(monkeypatch):
    rng = random.Random(0)
    model = text_model(max_rows=8)      # fewer than there are clients, so that some wait in the queue
    queue = model.prepared.queue
    with serving(model) as client:
        asked = [*requests(rng)]

        def post(own, path, body):
            found = own.post(path, body)
            assert found.status == 200, found.data
            return joined(events(found.data)) if body["stream"] else without_time(found.data)

        bodies = [post(client, path, body | {"stream": False}) for path, body in asked]
        expected = [whole(body) if asked[i][1]["stream"] else body for i, body in enumerate(bodies)]
        watched, stays = Watched(queue, monkeypatch), threading.Event()
        orderly = []        # whether each connection was ended with FIN

        def leaver(seed):
            own = random.Random(seed)
            for number in range(seed, LEFT, LEAVERS):
                kind = KINDS[number % len(KINDS)]
                orderly.append(leave(client.port, own, kind, number))

        def other(seed):
            own, mine = random.Random(seed), Client(client.port)
            while not stays.is_set():
                i = own.randrange(len(asked))
                assert post(mine, *asked[i]) == expected[i], asked[i]
            mine.close()

        def leavers():
            try:
                together([partial(leaver, seed) for seed in range(LEAVERS)])
            finally:
                stays.set()

        together([leavers, *(partial(other, -1 - seed) for seed in range(OTHERS))])
        service, requests_of = client.served.service, client.served.metrics._requests

        def gone():
            return requests_of["te_request_failure", "gone"]

        wait_for(lambda: service.statistics().waiting_requests == 0 and queue.counts == (0, 0))
        wait_for(lambda: sum(orderly) <= gone() and service.memory.used == 0)       # each end has been read
        assert not watched.stayed
        assert gone() <= LEFT
        assert service.statistics().cancelled > LEFT / 3
        numbers = model.statistics()
        assert (numbers.open_requests, numbers.cache_tokens) == (0, numbers.kept_tokens)
