"""Requests of all kinds at once: each body is the one that the same server gives to the request alone.

More requests, clients and threads than `make test` has:

    ENGINE_SERVED_REQUESTS=1000 python -m pytest tests/server/test_mixed_load.py
"""

import json
import os
import random
import socket
import time

import pytest

pytest.importorskip("uvicorn")
pytest.importorskip("jinja2")
pytest.importorskip("soundfile")

from engine import Engine, Transcriber

from ..tools.encoders import engine_of
from ..tools.head_models import folder_of
from ..tools.serving import JSON, Client, serving
from ..tools.speech import timed
from ..tools.text_models import text_model
from ..tools.threads import together, wait_for
from ..tools.tiny_models import random_model
from ..tools.tiny_text import tiny_text
from .bodies import CHAT, COMPLETE, FORM, TRANSCRIBE, events, form, joined, sound, whole, without_time

REQUESTS = int(os.environ.get("ENGINE_SERVED_REQUESTS", "48"))
"""How many requests the mixed load has."""
CLIENTS = 64 if REQUESTS > 500 else 12
KEYS = ["one", "two", "three"]
SOUNDS = [sound(2, 1), sound(31, 2), sound(0.5, 3)]
WORDS = ["the", "cat", "sat", "on", "a", "mat", "and", "a", "dog", "ran", "far", "away"]


def text_request(rng, number):
    """Return a request for text, whose prompt begins like some others."""
    settings = {"max_tokens": rng.choice((1, 5, 20, 60)), "seed": rng.randrange(5), "stream": rng.random() < 0.5}
    settings |= rng.choice(({}, {"temperature": 0}, {"n": 3}, {"logprobs": 2}, {"stop": ["a", "zz"]},
                            {"repetition_penalty": 1.3}, {"top_k": 5, "top_p": 0.9}))
    text = "the cat sat on the mat and " * rng.randrange(4) + f"{number % 7}"
    if rng.random() < 0.5:
        if "logprobs" in settings:
            settings |= {"logprobs": True, "top_logprobs": 2}
        return CHAT, {"messages": [{"role": "user", "content": text}]} | settings
    return COMPLETE, {"prompt": rng.choice((text, [text, "b"]))} | settings


def mixed_requests(rng, count):
    """Return requests of all kinds: the path, and the fields of JSON, or of a form with its recording."""
    found = []
    for i in range(count):
        texts = [" ".join(rng.choices(WORDS, k=rng.randrange(1, 10))) for _ in range(rng.choice((1, 3, 20)))]
        kind = rng.randrange(8)
        if kind < 4:
            found.append(text_request(rng, i))
        elif kind == 4:
            found.append(rng.choice((("/v1/embeddings", {"input": texts, "encoding_format": "base64"}),
                                     ("/embed", {"inputs": texts}), ("/v2/embed", {"texts": texts}))))
        elif kind == 5:
            found.append(("/rerank", {"query": texts[0], "documents": texts}))
        elif kind == 6:
            found.append(("/rerank", {"query": texts[0], "texts": texts, "model": "beside 1"}))
        else:
            found.append((TRANSCRIBE, {"file": rng.choice(SOUNDS), "stream": rng.choice(("true", "false")),
                                       "language": "en"} | rng.choice(({}, {"temperature": "1", "seed": "5"}))))
    return found


def sent(path, fields):
    """Return the headers and the body of a request."""
    if path != TRANSCRIBE:
        return JSON, json.dumps(fields).encode()
    return FORM, form(fields["file"], **{name: value for name, value in fields.items() if name != "file"})


def is_streamed(fields):
    return fields.get("stream") in (True, "true")


def unlike(path, fields, found, alone):
    """Return whether an answer is another one than that which is not streamed and came alone."""
    if not is_streamed(fields):
        return (without_time(found.data) if path in (CHAT, COMPLETE) else found.data) != alone
    if path == TRANSCRIBE:
        (*pieces, last), _ = events(found.data)
        return not "".join(one["delta"] for one in pieces) == last["text"] == alone["text"]
    return joined(events(found.data)) != whole(alone)


def leave(port, path, fields, seconds):
    """Send a request, and end the connection after some seconds."""
    headers, data = sent(path, fields)
    with socket.create_connection(("127.0.0.1", port)) as gone:
        lines = [f"POST {path} HTTP/1.1", "host: x", "authorization: Bearer one", f"content-length: {len(data)}",
                 *(f"{name}: {value}" for name, value in headers.items()), "", ""]
        gone.sendall("\r\n".join(lines).encode() + data)
        time.sleep(seconds)


def models(threads, cache_tokens):
    """Return a model of each kind; the one that writes texts comes first."""
    text = text_model(threads=threads, precision="int8" if threads == 2 else None, cache_tokens=cache_tokens)
    return text, [engine_of(random_model(tiny_text()), threads=threads),
                  Engine.load(folder_of("bert_pairs"), threads=threads),
                  Transcriber(timed(), threads=threads)]


@pytest.mark.parametrize(("threads", "cache_tokens"), [
    (1, None), (2, 640), *[(3, None), (4, 640)][: 2 * (REQUESTS > 500)]])
def test_each_body_is_that_of_the_request_alone(threads, cache_tokens):
    """Streams and bodies, of keys of their own, while others leave, and while a small cache lets some give way."""
    rng = random.Random(threads)
    model, beside = models(threads, cache_tokens)
    with serving(model, beside=beside, keys=KEYS) as client:
        asked = mixed_requests(rng, REQUESTS // 3)

        def post(own, path, fields, key):
            headers, data = sent(path, fields)
            headers = headers | {"authorization": f"Bearer {key}", "x-request-id": "mixed"}     # the id of ranks
            while (found := own.send("POST", path, data, headers)).status == 429:      # as the memory of all is full
                time.sleep(0.1)
            assert found.status == 200, found.data
            return found

        def alone(path, fields):
            found = post(client, path, fields | ({"stream": type(fields["stream"])()} if "stream" in fields else {}),
                         "one").data
            return without_time(found) if path in (CHAT, COMPLETE) else found

        expected = [alone(*one) for one in asked]

        def run(seed):
            own, mine = random.Random(seed), Client(client.port)
            mine.timeout = 300.0        # of the large form, on a machine that does other things, too
            for _ in range(REQUESTS // CLIENTS):
                i = own.randrange(len(asked))
                time.sleep(own.random() * 0.01)
                if own.random() < 0.2:
                    leave(client.port, *asked[i], own.random() * 0.02)
                found = post(mine, *asked[i], own.choice(KEYS))
                assert not unlike(*asked[i], found, expected[i]), (asked[i], found.data, expected[i])
            mine.close()

        together([lambda seed=seed: run(seed) for seed in range(CLIENTS)])
        services = [one.service for one in client.served.models]
        wait_for(lambda: not any(one.statistics().waiting_requests for one in services))
        assert model.prepared.queue.counts == (0, 0)
        assert (client.served.service.memory.used, client.served.disk.used) == (0, 0)
