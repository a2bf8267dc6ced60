"""Send HTTP requests to a server of embeddings, and measure rates and latencies.

`closed` keeps a number of clients busy, each with one request at a time: it measures the capacity. `open_loop` sends
requests at times of a Poisson process, whatever the server does, and measures each latency from the time when the
request was due: a server that stalls makes later requests wait, and that wait counts (no coordinated omission).
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from time import perf_counter

PATIENCE = 120.0
"""Seconds after which an answer is not waited for."""


@dataclass
class Load:
    """What one run measured."""

    seconds: float = 0.0
    texts: int = 0
    """Texts of requests with status 200."""
    latencies: list[float] = field(default_factory=list)
    """Seconds of requests with status 200."""
    statuses: Counter[int] = field(default_factory=Counter)

    @property
    def rate(self) -> float:
        """Texts with an answer, a second."""
        return self.texts / self.seconds

    def quantile(self, share: float) -> float:
        """Return the latency that this share of the answers does not exceed, in seconds."""
        ordered = sorted(self.latencies)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")

    def as_json(self) -> dict[str, object]:
        """Return the numbers of a run."""
        return {"texts_per_second": round(self.rate, 1), "p50_ms": round(1000 * self.quantile(0.5), 2),
                "p99_ms": round(1000 * self.quantile(0.99), 2), "answers": len(self.latencies),
                "statuses": dict(self.statuses), "seconds": round(self.seconds, 2)}


@dataclass(frozen=True)
class Post:
    """A request as it is sent, and the number of its texts."""

    data: bytes
    texts: int


def post(path: str, body: bytes, texts: int, headers: str = "") -> Post:
    """Return a request."""
    head = (f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n{headers}"
            f"content-length: {len(body)}\r\n\r\n")
    return Post(head.encode() + body, texts)


class Connection(asyncio.Protocol):
    """One connection with one request at a time, whose answer has a content-length."""

    def __init__(self) -> None:
        self._data, self._end = bytearray(), -1
        self._answer: asyncio.Future[int] | None = None

    @classmethod
    async def open(cls, port: int) -> Connection:
        """Return a connection to a port of this machine."""
        return (await asyncio.get_running_loop().create_connection(cls, "127.0.0.1", port))[1]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def connection_lost(self, error: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error or ConnectionResetError("the server ended the connection"))

    async def ask(self, data: bytes) -> int:
        """Return the status of the answer when it is whole; raises `OSError` if the server has ended the connection."""
        if self.transport.is_closing():
            raise ConnectionResetError("the server has ended the connection")
        self._data.clear()
        self._end, self._answer = -1, asyncio.get_running_loop().create_future()
        self.transport.write(data)
        return await asyncio.wait_for(self._answer, PATIENCE)

    def data_received(self, data: bytes) -> None:
        self._data += data
        if self._end < 0 and (head := self._data.find(b"\r\n\r\n")) >= 0:
            lines = bytes(self._data[:head]).lower().split(b"\r\n")
            [length] = [int(line[15:]) for line in lines if line.startswith(b"content-length:")]
            self._end = head + 4 + length
        if 0 <= self._end <= len(self._data) and self._answer is not None and not self._answer.done():
            self._answer.set_result(int(self._data[9:12]))


async def closed(port: int, clients: int, posts: Sequence[Post], seconds: float) -> Load:
    """Return what some clients measured, each of which sends its next request when it has the answer."""
    load, turn = Load(), itertools.cycle(posts)
    begin = perf_counter()

    async def client() -> None:
        connection = await Connection.open(port)
        while (start := perf_counter()) < begin + seconds:
            one = next(turn)
            note(load, await connection.ask(one.data), one, start)
        connection.transport.close()

    await asyncio.gather(*(client() for _ in range(clients)))
    load.seconds = perf_counter() - begin
    return load


async def open_loop(port: int, rate: float, posts: Sequence[Post], seconds: float, seed: int = 0,
                    tick: float = 0.0) -> Load:
    """Return what requests measured that were due at random times, `rate` of them a second.

    tick: the least seconds between two times of sending what is due, for clients that share the cores of the server.
    """
    rng, load, idle, turn = random.Random(seed), Load(), [], itertools.cycle(posts)
    tasks: set[asyncio.Task[None]] = set()
    begin = perf_counter()

    async def request(due: float, one: Post) -> None:
        try:
            while idle and idle[-1].transport.is_closing():     # a server ends connections that are idle for long
                idle.pop()
            connection = idle.pop() if idle else await Connection.open(port)
            status = await connection.ask(one.data)
        except (OSError, asyncio.TimeoutError):
            load.statuses[0] += 1
            return
        note(load, status, one, due)
        idle.append(connection)

    due = begin
    while due < begin + seconds:
        if (wait := due - perf_counter()) > 0:
            await asyncio.sleep(max(wait, tick))
        task = asyncio.create_task(request(due, next(turn)))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        due += rng.expovariate(rate)
    if tasks:
        await asyncio.wait(tasks)
    load.seconds = perf_counter() - begin
    for connection in idle:
        connection.transport.close()
    return load


def note(load: Load, status: int, one: Post, start: float) -> None:
    """Count an answer."""
    load.statuses[status] += 1
    if status == 200:
        load.latencies.append(perf_counter() - start)
        load.texts += one.texts
