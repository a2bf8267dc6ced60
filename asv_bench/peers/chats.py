"""Measure servers of chats beside each other, with SmolLM2, on the cores that the clients use, too.

    cd asv_bench && python -m peers.chats SmolLM2-135M-Instruct.Q4_1.gguf [--llama PATH_OF_LLAMA_SERVER] [--turns 3]
        [--only together clients long overload]

The engine computes in int8, llama-server reads a file of Q8_0; each has 32 slots. Each measure has a server of
its own, and all streams are read by one process of clients. The measures are

    together  16 chats with a new common system prompt of 1,000 tokens arrive together and get 64 tokens each
    clients   1, 4, 16 and 32 clients with short prompts, 64 tokens each: tokens a second, and to the first one
    long      8 answers are being written while a prompt of 7,500 tokens is read: the gaps between their events
    overload  answers of 64 tokens are asked for at 1.2 times the rate of 32 clients, at times of a Poisson process
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from .llama_language import rewrite
from .machine import cpu_name

WORDS = ("the", "of", "time", "model", "text", "year", "people", "way", "day", "man", "thing", "woman", "life", "child")
NEW, SLOTS, CONTEXT = 64, 32, 8192


@dataclass
class Stream:
    """What one client got."""

    status: int = 0
    begun: float = 0.0
    times: list[float] = field(default_factory=list)
    """When each piece of text came."""
    tokens: int = 0

    @property
    def first(self) -> float:
        """Seconds to the first piece."""
        return self.times[0] - self.begun if self.times else float("nan")


def words(rng: random.Random, count: int) -> str:
    """Return a text of about `count` tokens."""
    return " ".join(rng.choices(WORDS, k=count))


async def chat(port: int, user: str, system: str = "", new: int = NEW) -> Stream:
    """Ask for an answer, and read its stream to the end."""
    messages = [{"role": "system", "content": system}] * bool(system) + [{"role": "user", "content": user}]
    body = json.dumps({"model": "m", "messages": messages, "max_tokens": new, "temperature": 0, "ignore_eos": True,
                       "stream": True, "stream_options": {"include_usage": True}}).encode()
    found = Stream(begun=time.perf_counter())
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
    writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n"
                 b"content-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
    found.status = int((await reader.readline()).split()[1])
    while line := await reader.readline():
        if line.startswith(b"data: {"):
            event = json.loads(line[6:])
            if any(choice["delta"].get("content") for choice in event["choices"]):
                found.times.append(time.perf_counter())
            if event.get("usage"):
                found.tokens = event["usage"]["completion_tokens"]
    writer.close()
    return found


def shown(streams: list[Stream], seconds: float) -> str:
    """Return what some streams got in all."""
    rate, first = sum(stream.tokens for stream in streams) / seconds, median(stream.first for stream in streams)
    return f"{rate:8.1f} tokens/s, {first:.3f} s to the first"


def quantile(ordered: list[float]) -> float:
    """Return the number that 99 % of some numbers do not exceed."""
    return ordered[int(0.99 * len(ordered))]


async def together(port: int, rng: random.Random) -> str:
    """Let chats with a common system prompt arrive together."""
    system, begun = words(rng, 1000), time.perf_counter()
    streams = await asyncio.gather(*(chat(port, words(rng, 20), system) for _ in range(16)))
    return shown(streams, time.perf_counter() - begun)


async def of_clients(port: int, rng: random.Random, count: int, each: int = 3) -> tuple[float, str]:
    """Return the answers a second of clients that ask one after the other, and what they got."""
    streams, begun = [], time.perf_counter()

    async def client() -> None:
        for _ in range(each):
            streams.append(await chat(port, words(rng, 20)))

    await asyncio.gather(*(client() for _ in range(count)))
    seconds = time.perf_counter() - begun
    return len(streams) / seconds, shown(streams, seconds)


async def clients(port: int, rng: random.Random) -> str:
    """Return what several numbers of clients get."""
    return "\n    ".join([f"{count:>2} clients {(await of_clients(port, rng, count))[1]}"
                          for count in (1, 4, 16, SLOTS)])


async def long(port: int, rng: random.Random) -> str:
    """Let a long prompt arrive while answers are written, and return the gaps between their events."""
    writing = [asyncio.create_task(chat(port, words(rng, 20), new=400)) for _ in range(8)]
    await asyncio.sleep(2.0)
    arrived = time.perf_counter()
    late = await chat(port, words(rng, 7500), new=1)
    ended = time.perf_counter()
    before, beside = [], []
    for stream in await asyncio.gather(*writing):
        for first, second in zip(stream.times[1:], stream.times[2:], strict=False):
            (before if second < arrived else beside if first < ended else []).append(1e3 * (second - first))
    ordered = sorted(beside) or [float("nan")]
    return (f"gaps before {median(before):.1f} ms, beside it {median(ordered):.1f}, 99 % {quantile(ordered):.1f}, the "
            f"longest {ordered[-1]:.1f}; its own first token after {late.first:.2f} s")


async def overload(port: int, rng: random.Random, seconds: float = 60.0) -> str:
    """Ask for more answers than the server can write."""
    rate, tasks = 1.2 * (await of_clients(port, rng, SLOTS))[0], []
    begun = due = time.perf_counter()
    while (due := due + rng.expovariate(rate)) < begun + seconds:
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        tasks.append(asyncio.create_task(chat(port, words(rng, 20))))
    streams = await asyncio.gather(*tasks)
    took = time.perf_counter() - begun
    served = [stream for stream in streams if stream.status == 200]
    waits = sorted(stream.first for stream in served)
    statuses = dict(Counter(stream.status for stream in streams))
    return (f"{len(served) / took / (rate / 1.2):.2f} of the capacity of {rate / 1.2:.1f} answers/s, first token after "
            f"{median(waits):.2f} s, 99 % {quantile(waits):.2f} s, statuses {statuses}")


PARTS: dict[str, Callable[[int, random.Random], Coroutine[Any, Any, str]]] = {
    "together": together, "clients": clients, "long": long, "overload": overload}


@contextmanager
def started(command: list[str], port: int, log: Path) -> Iterator[None]:
    """Run a server that answers."""
    with log.open("wb") as written:
        process = subprocess.Popen(command, stdout=written, stderr=subprocess.STDOUT)
    try:
        end = time.monotonic() + 120
        while True:
            with suppress(OSError, IndexError):
                if asyncio.run(chat(port, "hello", new=2)).status == 200:
                    break
            if process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"the server did not start: {log.read_text()[-2000:]}")
            time.sleep(0.3)
        yield
    finally:
        process.terminate()
        process.wait(60)


def main() -> None:
    """Print the lines."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("path", type=Path)
    parser.add_argument("--llama", type=Path, help="the program llama-server")
    parser.add_argument("--only", nargs="+", choices=[*PARTS], default=[*PARTS])
    for name, usual in (("turns", 3), ("threads", 2), ("port", 8765)):
        parser.add_argument(f"--{name}", type=int, default=usual)
    given = parser.parse_args()
    print(cpu_name())
    with tempfile.TemporaryDirectory() as folder:
        port, file, threads = str(given.port), Path(folder) / "Q8_0.gguf", str(given.threads)
        servers = {"engine": [sys.executable, "-m", "engine", "serve", str(given.path), "--served-model-name", "m",
                              "--port", port, "--threads", threads, "--precision", "int8", "--max-rows", str(SLOTS)]}
        if given.llama:
            rewrite(given.path, file, "Q8_0")
            servers["llama-server"] = [
                str(given.llama), "-m", str(file), "--port", port, "-t", threads, "-tb", threads, "-np", str(SLOTS),
                "--kv-unified", "-c", str(4 * CONTEXT), "--cache-ram", "0", "--jinja", "--log-disable"]
        for turn in range(given.turns):
            for name, command in [*servers.items()][:: 1 if turn % 2 else -1]:
                for part in given.only:
                    patience = ["--max-wait", "60"] if name == "engine" and part != "overload" else []
                    with started([*command, *patience], given.port, Path(folder) / "log"):
                        line = asyncio.run(PARTS[part](given.port, random.Random(turn)))
                    print(f"{name}, {part}\n    {line}", flush=True)


if __name__ == "__main__":
    main()
