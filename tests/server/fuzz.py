"""Send mutated requests to servers of tiny models: python -m tests.server.fuzz --count 100000 --seed 0.

Each request has to be answered in time, with a status that a client's mistake can have, and without a traceback. A
request depends on the seed and its number alone. Nothing may be an error of the server (500).
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import random
import socket
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack, closing, redirect_stderr, suppress
from dataclasses import replace
from pathlib import Path

import numpy as np

from engine import Engine, Transcriber

from ..tools.encoders import engine_of
from ..tools.head_models import folder_of
from ..tools.serving import serving
from ..tools.sound_files import encoded, wav
from ..tools.speech import recording, timed
from ..tools.text_models import text_model
from ..tools.tiny_models import random_model
from ..tools.tiny_text import VOCABULARY, tiny_text
from ..tools.zero_shot import nli_folder

MODELS = {"vectors": ("/v1/embeddings", "/v2/embed", "/embed", "/embed_all", "/similarity", "/tokenize", "/decode"),
          "bert_fill_mask": ("/embed_sparse",), "bert_classify": ("/predict",), "nli": ("/zero-shot",),
          "bert_tag": ("/tag",),
          "bert_pairs": ("/rerank", "/v1/rerank", "/score", "/predict"),
          "text": ("/v1/chat/completions", "/v1/completions", "/v1/completions", "/tokenize", "/detokenize",
                   "/apply-template"),
          "speech": ("/v1/audio/transcriptions", "/v1/audio/translations")}
"""The routes that are asked, by the model."""
SHARES = {"vectors": 3, "text": 3}
"""How many of the requests a model gets, where it is not one share."""
STATUSES = {200, 400, 404, 405, 408, 413, 415, 422, 429, 431}
WAIT = 60
"""Seconds in which an answer has to come, without those for which all processes of the machine may stop."""
WORDS = (*VOCABULARY, "[CLS]")
ODD = ("", " ", "é", "猫", "\x00", "\u202e", "𝕏", "a" * 300, "\ud800", "\n")


class Found(Exception):
    """A request got an answer that it must not get."""


def text(rng: random.Random) -> str:
    count = rng.choice((0, *[1, 3, 9] * 6, 60))
    return " ".join(rng.choice(ODD if rng.random() < 0.02 else WORDS) for _ in range(count))


def junk(rng: random.Random, depth: int = 0) -> object:
    """Return a value of JSON."""
    kind = rng.randrange(12 if depth < 3 else 8)
    if kind < 8:
        return (None, True, rng.randrange(-3, 40), 10 ** rng.randrange(30), rng.random(), text(rng), float("inf"),
                float("nan"))[kind]
    items = [junk(rng, depth + 1) for _ in range(rng.randrange(4))]
    return items if kind < 10 else {text(rng)[:9]: item for item in items}


def inputs(rng: random.Random) -> object:
    """Return inputs, right ones in most cases."""
    kind = rng.randrange(20)
    if kind < 5:
        return text(rng)
    if kind < 16:
        return [text(rng) for _ in range(rng.choice((0, *[1, 2, 5] * 4, 40)))]
    if kind == 16:
        return [rng.randrange(-1, 32) for _ in range(rng.randrange(20))]
    if kind == 17:
        return [[rng.randrange(31) for _ in range(rng.randrange(20))] for _ in range(rng.randrange(3))]
    return junk(rng)


def labels(rng: random.Random) -> object:
    """Return the parameters of a request to /zero-shot, right ones in most cases."""
    found = {"candidate_labels": rng.choice((["a", "the cat"], "a, b", inputs(rng)))}
    for name, values in (("hypothesis_template", ("it is {}", "it is", "{0}", None)),
                         ("multi_label", (True, False, None)), ("truncate", (True, "x"))):
        if rng.random() < 0.2:
            found[name] = rng.choice(values) if rng.random() < 0.8 else junk(rng)
    return found if rng.random() < 0.95 else junk(rng)


def fields(rng: random.Random, path: str) -> dict[str, object]:
    """Return the fields of a request to a route."""
    found: dict[str, object] = {
        "/v1/embeddings": lambda: {"input": inputs(rng)}, "/v2/embed": lambda: {"texts": inputs(rng)},
        "/similarity": lambda: {"inputs": {"source_sentence": text(rng), "sentences": inputs(rng)}},
        "/decode": lambda: {"ids": inputs(rng)},
        "/zero-shot": lambda: {"inputs": inputs(rng), "parameters": labels(rng)},
        "/rerank": lambda: {"query": text(rng), rng.choice(("texts", "documents")): inputs(rng)},
        "/v1/rerank": lambda: {"query": text(rng), "documents": inputs(rng)},
        "/score": lambda: {"text_1": inputs(rng), "text_2": inputs(rng)},
    }.get(path, lambda: {"inputs": inputs(rng)})()
    for name, values in (("truncate", (True, False, "END", "START", "x")), ("prompt_name", ("query", "x")),
                         ("input_type", ("query", "search_document", "clustering", "x")), ("dimensions", (1, 12, 13)),
                         ("encoding_format", ("base64", "float")), ("top_n", (0, 1, 5)), ("normalize", (True, False)),
                         ("truncation_direction", ("Left", "right")), ("model", ("tiny", "x")), ("user", ("x",)),
                         ("raw_scores", (True,)), ("embedding_types", (["binary"], ["float", "base64"], [])),
                         ("aggregation_strategy", ("none", "first", "x")), ("stride", (0, 2, 1000))):
        if rng.random() < 0.03:
            found[name] = rng.choice(values) if rng.random() < 0.8 else junk(rng)
    if rng.random() < 0.05:
        found.pop(rng.choice(list(found)), None)
    return found


TEXT_FIELDS: dict[str, tuple[object, ...]] = {
    "max_tokens": (1, 3, 9, 0, -1, 10**9), "temperature": (0, 0.5, 1, 2, -1), "top_p": (0, 0.5, 1, 2),
    "n": (1, 2, 3, 0, 999), "min_p": (0, 0.1, 2), "seed": (0, 5, 2**63, 2**64, -1), "top_k": (-1, 0, 5),
    "stop": ("a", ["a", "cat"], [], [""]),
    "presence_penalty": (1, 3), "frequency_penalty": (-1, -3), "repetition_penalty": (1.2, 0), "min_tokens": (1, 5, 99),
    "logit_bias": ({"70": 5}, {"a": 1, "99999": 2}, {"70": 500}, {"\ud800": 1}), "ignore_eos": (True,),
    "stream": (True, False), "stream_options": ({"include_usage": True}, {"include_usage": 1}, {"x": 1}),
    "echo": (True, False), "top_logprobs": (0, 2, 21), "prompt_logprobs": (0, 1), "user": ("u",), "tools": ([], [{}]),
    "response_format": ({"type": "text"}, {"type": "json_object"}), "continue_final_message": (True,),
    "chat_template_kwargs": ({"a": 1}, {"messages": []}), "add_generation_prompt": (True, False), "x y": (1,)}


def text_fields(rng: random.Random, path: str) -> dict[str, object]:
    """Return the fields of a request for text."""
    if path == "/detokenize":
        return {"tokens": inputs(rng)}
    if path == "/tokenize":
        return {rng.choice(("prompt", "content", "inputs")): text(rng), "with_pieces": rng.random() < 0.1}
    chats = path != "/v1/completions"
    found: dict[str, object] = {"max_tokens": rng.choice((1, 2, 4))} if path.startswith("/v1") else {}
    if chats:
        turns = [{"role": rng.choice(("user", "system", "assistant", "tool", text(rng))), "content": text(rng)}
                 for _ in range(rng.randrange(4))]
        if turns and rng.random() < 0.2:
            turns[0]["content"] = rng.choice((None, [], [{"type": "text", "text": text(rng)}], junk(rng)))
        found["messages"] = turns if rng.random() < 0.95 else junk(rng)
    else:
        found["prompt"] = inputs(rng)
    if rng.random() < 0.1:
        found["logprobs"] = rng.choice((True, 1, 0, 5, 21))
    for name, values in TEXT_FIELDS.items():
        if rng.random() < 0.05:
            found[name] = rng.choice(values) if rng.random() < 0.9 else junk(rng)
    return found


FORM_FIELDS: dict[str, tuple[str, ...]] = {
    "model": ("tiny", "x", ""), "language": ("en", "de", "English", "x"), "temperature": ("0", "1", "-1", "x", "nan"),
    "response_format": ("json", "text", "srt", "vtt", "verbose_json", "x"), "stream": ("true", "false", "1", "x"),
    "timestamp_granularities[]": ("word", "segment", "x"), "timestamp_granularities": ("word", "x"),
    "seed": ("5", "-1", "1e3", str(2**64)), "chunking_strategy": ("auto", "x"), "include[]": ("logprobs",),
    "prompt": ("", "a"), "x y": ("1",), "": ("a",), "\"": ("b",)}


def sound(rng: random.Random) -> bytes:
    """Return a file of audio, which is right in most cases."""
    samples = recording(rng.choice((0.001, 0.1, 1.0)), rng.randrange(3)).clip(-1, 1)
    kind = rng.randrange(10)
    if kind == 0:
        return rng.choice((b"", b"ID3", b"fLaC", b"OggS", b"RIFF", bytes(4) + b"ftypM4A ")) + rng.randbytes(30)
    if kind < 3:
        return encoded(samples, *rng.choice((("FLAC", "PCM_16"), ("OGG", "VORBIS"), ("MP3", "MPEG_LAYER_III"))))
    data = bytearray(wav(np.round(samples * 32767).astype("<i2").tobytes(), rate=rng.choice((16000, 8000, 44100))))
    if kind == 3:
        del data[rng.randrange(len(data)) :]
    if kind == 4:
        data[rng.randrange(44)] = rng.randrange(256)
    return bytes(data)


def form_of(rng: random.Random) -> bytes:
    """Return the body of a form with a recording, whose boundary is "cut"."""
    parts = [(name, "", rng.choice(values)) for name, values in FORM_FIELDS.items() for _ in range(2)
             if rng.random() < 0.03]
    files = rng.choices((1, 0, 2), (30, 1, 1))[0]
    heads = [f'name="{name}"{more}' for name, more, _ in parts]
    heads += [rng.choice(('name="file"; filename="a.wav"', "name=file; filename=a", 'name="file"'))
              for _ in range(files)]
    contents = [value.encode() for _, _, value in parts] + [sound(rng) for _ in range(files)]
    order = rng.sample(range(len(heads)), len(heads))
    return b"".join(b"--cut\r\ncontent-disposition: form-data; %b\r\n\r\n%b\r\n" % (heads[i].encode(), contents[i])
                    for i in order) + b"--cut--\r\n"


FORM_TYPES = ("multipart/form-data; boundary=cut",) * 20 + (
    "multipart/form-data; boundary=x", "multipart/form-data", "application/json",
    "multipart/form-data; boundary=" + "c" * 300)


def body_of(rng: random.Random, path: str, name: str) -> bytes:
    """Return the body of a request, which is right, or wrong in its bytes."""
    if name == "speech":
        data = form_of(rng)
    else:
        asked = (text_fields if name == "text" else fields)(rng, path)
        data = json.dumps(asked, ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass")
    kind = rng.randrange(20)
    if kind == 0:
        return data[: rng.randrange(len(data) + 1)]
    if kind == 1:
        place = rng.randrange(len(data))
        return data[:place] + rng.randbytes(rng.randrange(1, 4)) + data[place + rng.randrange(3) :]
    if kind == 2:
        return data[:-1] + b"," + data[1:]         # every field twice
    if kind == 3:
        depth = rng.choice((3, 64, 65, 5000))
        return b'{"inputs":' + b"[" * depth + b"]" * depth + b"}"
    if kind == 4:
        return rng.randbytes(rng.randrange(50))
    return data


def request(rng: random.Random, path: str, name: str) -> bytes:
    """Return a request to a model as it is sent; its connection ends with the answer in some cases."""
    body = body_of(rng, path, name)
    method = rng.choice(("POST",) * 30 + ("GET", "PUT", "HEAD", "POS T"))
    if rng.random() < 0.03:
        path = rng.choice((path + "/", "/x", path + "?a=b", "//", "/%00", "/v1/models/%ff", "x"))
    kind = rng.choice(FORM_TYPES if name == "speech" else ("application/json",) * 20 + (
        "text/plain", "application/json; charset=latin-1", ""))
    lines = [f"{method} {path} HTTP/1.1", "host: x", f"content-type: {kind}"]
    if rng.random() < 0.1:
        lines.append(rng.choice(("x-request-timeout: 5", "x-request-timeout: x", "content-encoding: gzip",
                                 "x-request-id: a b", "x-request-id: mine", "authorization: x", "x: " + "a" * 40_000,
                                 "expect: 100-continue", "upgrade: websocket\r\nconnection: upgrade", "no colon")))
    if rng.random() < 0.1:
        size = rng.randrange(1, 9)
        chunks = [body[i : i + size * 100] for i in range(0, len(body), size * 100)]
        sent = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"
        return "\r\n".join([*lines, "transfer-encoding: chunked", "", ""]).encode() + sent
    return "\r\n".join([*lines, f"content-length: {len(body)}", "", ""]).encode() + body


class Reader:
    """One connection, which is opened again where the server ends it."""

    def __init__(self, port: int):
        self._port = port
        self._socket: socket.socket | None = None

    def ask(self, data: bytes) -> tuple[int, bytes]:
        """Return the status and the body of the answer."""
        if self._socket is None:
            self._socket = socket.create_connection(("127.0.0.1", self._port), timeout=1.0)
        self._socket.sendall(data)
        found = b""
        while True:
            head, end, rest = found.partition(b"\r\n\r\n")
            if end and head.startswith(b"HTTP/1.1 100"):
                found = rest
                continue
            if end and (data.startswith(b"HEAD") or is_whole(head, rest)):
                break
            found += self._part(self._socket, found)
        if b"connection: close" in head.lower():
            self.close()
        return int(head[9:12]), rest

    def _part(self, connection: socket.socket, found: bytes) -> bytes:
        """Return the next bytes of an answer. found: those before."""
        for _ in range(WAIT):
            with suppress(TimeoutError):
                if part := connection.recv(2**16):
                    return part
                raise Found(f"the connection ended after {found!r}")
        raise Found(f"there is no answer after {WAIT} s")

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def is_whole(head: bytes, body: bytes) -> bool:
    """Return whether a body is there to its end, also one in chunks, as streams have them."""
    if b"\r\ntransfer-encoding: chunked" in head.lower():
        return body.endswith(b"\r\n0\r\n\r\n")
    return len(body) >= length(head)


def length(head: bytes) -> int:
    [line] = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")] or [b":0"]
    return int(line.partition(b":")[2])


def check(status: int, body: bytes, data: bytes) -> None:
    """Raise `Found` for a status that no client's mistake has, a traceback, and an error that is no JSON."""
    if status not in STATUSES or b"Traceback" in body:
        raise Found(f"status {status}, {body[:300]!r}")
    if status != 200 and not data.startswith(b"HEAD"):
        json.loads(body)


def run(count: int, seed: int, first: int = 0, names: Sequence[str] = tuple(MODELS)) -> Counter[tuple[str, int]]:
    """Send requests to servers of some models, and return how many of each got each status; raises `Found`."""
    statuses: Counter[tuple[str, int]] = Counter()
    with ExitStack() as stack:
        readers = {}
        for name in names:
            prompts = {"query": "query : ", "document": "the "}
            if name == "text":
                model = text_model()
            elif name == "speech":
                made = timed(several=True)
                heads = made.generation.changed(alignment_heads=[[0, 1], [1, 2]])
                model = Transcriber(replace(made, generation=heads), threads=1)
            elif name == "vectors":
                model = engine_of(random_model(tiny_text(max_seq_length=12, prompts=prompts)), threads=1)
            else:
                model = Engine.load(nli_folder("bert_classify") if name == "nli" else folder_of(name), threads=1)
            client = stack.enter_context(serving(model, max_body=20_000))
            readers[name] = stack.enter_context(closing(Reader(client.port)))
        for number in range(first, first + count):
            rng = random.Random(f"{seed} {number}")
            name = rng.choice([name for name in names for _ in range(SHARES.get(name, 1))])
            data = request(rng, rng.choice(MODELS[name]), name)
            try:
                status, body = readers[name].ask(data)
                check(status, body, data)
            except (Found, OSError, ValueError) as error:
                raise Found(f"request {number} of seed {seed} to {name}: {error!r}; sent {data[:2000]!r}") from error
            statuses[name, status] += 1
    return statuses


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--model", action="append", choices=MODELS, help="a model to ask, in place of all")
    asked = parser.parse_args()
    logging.disable()
    with Path(os.devnull).open("w") as silent, redirect_stderr(silent):     # the log of the servers
        try:
            found = run(asked.count, asked.seed, asked.first, asked.model or tuple(MODELS))
        except Found as error:
            print(error)
            sys.exit(1)
    print(*(f"{name} {status}: {count}" for (name, status), count in sorted(found.items())), sep="\n")
