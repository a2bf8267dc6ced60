"""Requests over real sockets, and one form of answers with texts, streamed or not."""

import json
import socket
import threading
import time
from concurrent.futures import Future

import numpy as np

from ..tools.serving import Client
from ..tools.sound_files import wav
from ..tools.speech import recording

CHAT, COMPLETE, TRANSCRIBE = "/v1/chat/completions", "/v1/completions", "/v1/audio/transcriptions"
FORM = {"content-type": "multipart/form-data; boundary=cut"}


def sound(seconds, seed=0):
    """Return the bytes of a WAV file."""
    return wav(np.round(recording(seconds, seed).clip(-1, 1) * 32767).astype("<i2").tobytes())


def form(data, **fields):
    """Return the body of a form with a recording, in the field of OpenAI's clients."""
    parts = [(f'name="{name}"', one.encode()) for name, value in fields.items()
             for one in ([value] if isinstance(value, str) else value)]
    parts.insert(len(parts) // 2, ('name="file"; filename="a.wav"', data))
    return b"".join(b"--cut\r\ncontent-disposition: form-data; %b\r\n\r\n%b\r\n" % (name.encode(), value)
                    for name, value in parts) + b"--cut--\r\n"


def events(data):
    """Return the events of a stream, without [DONE], and whether that came."""
    parts = data.decode().split("\n\n")
    assert parts.pop() == ""
    found = [part.removeprefix("data: ") for part in parts if not part.startswith(":")]
    done = found[-1] == "[DONE]"
    return [json.loads(part) for part in found[: len(found) - done]], done


def joined(stream):
    """Return the body that is not streamed for the events of a stream."""
    found, done = stream
    assert done
    choices = {}
    for event in found:
        for choice in event["choices"]:
            index, front = choice["index"], choice.get("delta", choice)
            whole = choices.setdefault(index, {"text": "", "reasoning": "", "logprobs": [], "finish_reason": None})
            whole["text"] += front.get("content", front.get("text", ""))
            whole["reasoning"] += front.get("reasoning_content", "")
            if choice["logprobs"] is not None:
                whole["logprobs"].append(choice["logprobs"])
            assert whole["finish_reason"] is None
            whole["finish_reason"] = choice["finish_reason"]
            assert {"index", "logprobs", "finish_reason"} <= choice.keys()
    for whole in choices.values():
        parts = whole.pop("logprobs")
        whole["logprobs"] = {name: [one for part in parts for one in part[name] or ()]
                             for name in ("content", "tokens", "token_logprobs", "top_logprobs", "text_offset")
                             if parts and name in parts[0]}
    return {"id": found[0]["id"], "choices": choices}


def whole(body):
    """Return the same of a body that was not streamed."""
    choices = {}
    for choice in body["choices"]:
        message = choice.get("message", {})
        logprobs = choice["logprobs"] or {}
        choices[choice["index"]] = {
            "text": message.get("content", choice.get("text")), "reasoning": message.get("reasoning_content", ""),
            "finish_reason": choice["finish_reason"],
            "logprobs": {name: logprobs[name] or [] for name in logprobs if name != "refusal"}}
    return {"id": body["id"], "choices": choices}


def post_once(port, path, body):
    """Return the answer to a request on a connection of its own."""
    client = Client(port)
    try:
        return client.post(path, body)
    finally:
        client.close()


class Waiters:
    """Calls of the thread that adds them, in place of those of an event loop, as `Replies` has them."""

    def add(self, calls):
        for call in calls:
            call()

    def news(self, stream):
        """Return a future that is done at the news of a stream."""
        news = Future()
        stream.news.listen(self, lambda: news.done() or news.set_result(None))
        if stream.has_news:
            stream.news.ring()
        return news


class Gate:
    """Holds the steps of a model back until it is opened, or lets some of them through."""

    def __init__(self, model, monkeypatch, fails=None):
        self.steps, self._left = 0, threading.Semaphore(0)
        stepper = model.prepared.queue._stepper
        step = stepper.step

        def held(rows, stop):
            assert self._left.acquire(timeout=60)
            self.steps += 1
            if fails is not None and any(fails in row.tokens.tolist() for row in rows):
                raise RuntimeError("of one request")
            return step(rows, stop)

        monkeypatch.setattr(stepper, "step", held)

    def let(self, steps=1):
        self._left.release(steps)


def without_time(body):
    assert abs(body["created"] - time.time()) < 600
    return {name: value for name, value in body.items() if name != "created"}


def leave(port, body, path=CHAT, reads=0):
    """Send a request, read some events of its answer, and return the connection."""
    data = json.dumps(body).encode()
    connection = socket.create_connection(("127.0.0.1", port), timeout=60)
    connection.sendall(b"POST %b HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
                       % (path.encode(), len(data), data))
    found = b""
    while found.count(b"data: ") < reads:
        found += connection.recv(2**16)
    return connection
