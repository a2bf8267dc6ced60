"""Measure a server of ours under pressure: more requests than it can answer, a neighbour's long lists, and hours.

    cd asv_bench && python -m peers.pressure overload|fairness|memory --minilm FOLDER [--precision int8]

    overload   1.2 times the capacity: how much of the capacity is answered, and how late
    fairness   single texts of one client while another sends requests of 2,000: their latency beside that alone
    memory     mixed requests without a pause: how fast the server's memory grows

The clients share the cores with the server, and their CPU time is printed. They send what is due every 10 ms.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from .load import Connection, Load, Post, closed, note, open_loop, post
from .process_tree import status
from .serving import Peer, started
from .work import sentences

TICK = 0.01
"""Seconds between two times at which requests that are due are sent."""
LIST = 2000
"""The texts of a long request."""


def peer_of(args: argparse.Namespace) -> Peer:
    """Return the server under pressure."""
    return Peer("encoder-engine", lambda port: [
        sys.executable, "-m", "engine", "serve", str(args.minilm), "--served-model-name", "m", "--port", str(port),
        "--threads", str(args.threads), "--precision", args.precision, "--max-wait", str(args.max_wait)],
        fields={"model": "m", "encoding_format": "base64", "truncate": True})


def measured(name: str, load: Load) -> None:
    """Print what a run measured."""
    print(f"{name}: {json.dumps(load.as_json())}", flush=True)


def server_of(port: int) -> int:
    """Return the process of the server at a port."""
    [pid] = {int(path.parent.name) for path in Path("/proc").glob("[0-9]*/cmdline")
             if b"serve\0" in path.read_bytes() and f"--port\0{port}\0".encode() in path.read_bytes()}
    return pid


def capacity(port: int, posts: list[Post], seconds: float) -> Load:
    """Return what 64 clients with one text a request get."""
    load = asyncio.run(closed(port, 64, posts, seconds))
    measured("capacity", load)
    return load


class Cost:
    """The server's CPU time for an answer: it tells what the server wastes, also while the machine's speed changes."""

    def __init__(self, port: int):
        self._pid, self._seconds, self._answers = server_of(port), 0.0, 0

    def of(self, run: Callable[[], Load]) -> Load:
        """Count a run."""
        begun = self._cpu()
        load = run()
        self._seconds, self._answers = self._seconds + self._cpu() - begun, self._answers + load.statuses[200]
        return load

    def _cpu(self) -> float:
        now = status(self._pid)
        if now is None:
            raise RuntimeError("the server has ended")
        return now.cpu

    @property
    def milliseconds(self) -> float:
        """CPU time for an answer."""
        return 1000 * self._seconds / self._answers


def overload(port: int, peer: Peer, args: argparse.Namespace) -> None:
    """Print the share of the capacity that is answered at 1.2 times the capacity, in turns with the capacity."""
    posts, rates, loads, used = peer.posts(sentences(), 1), [], [], 0.0
    usual, pressed = Cost(port), Cost(port)
    at_capacity = partial(capacity, port, posts, args.seconds / 2)
    for turn in range(args.turns):
        rates.append(usual.of(at_capacity).rate)
        begun = time.process_time()
        requests = open_loop(port, 1.2 * rates[-1], posts, args.seconds, turn, TICK)
        loads.append(pressed.of(partial(asyncio.run, requests)))
        used += time.process_time() - begun
        measured("1.2 x capacity", loads[-1])
    rates.append(usual.of(at_capacity).rate)
    shares = [load.rate / ((rates[i] + rates[i + 1]) / 2) for i, load in enumerate(loads)]
    print(f"answered {np.mean(shares):.3f} of the capacity ({min(shares):.3f} to {max(shares):.3f}); p99 "
          f"{max(load.quantile(0.99) for load in loads):.2f} s, twice max_wait is {2 * args.max_wait:g} s; the clients "
          f"took {used / sum(load.seconds for load in loads):.2f} of a core; the server's CPU time for an answer: "
          f"{pressed.milliseconds:.2f} ms, at its capacity {usual.milliseconds:.2f}", flush=True)


def fairness(port: int, peer: Peer, args: argparse.Namespace) -> None:
    """Print the p99 of single texts alone and beside two clients that send lists, and the longest batch."""
    single = peer.posts(sentences(), 1)
    texts = [*itertools.islice(itertools.cycle(sentences()), LIST)]
    [long] = peer.posts(texts, LIST)

    async def beside(seed: int) -> tuple[Load, Load]:
        lists, stop = Load(), time.perf_counter() + args.seconds

        async def send() -> None:
            connection = await Connection.open(port)
            while (start := time.perf_counter()) < stop:
                note(lists, await connection.ask(long.data), long, start)

        begun = time.perf_counter()
        tasks = [asyncio.create_task(send()) for _ in range(2)]
        await asyncio.sleep(0.5)
        singles = await open_loop(port, 5, single, args.seconds - 1, seed)
        await asyncio.gather(*tasks)
        lists.seconds = time.perf_counter() - begun
        return singles, lists

    for turn in range(args.turns):
        alone = asyncio.run(open_loop(port, 5, single, args.seconds, turn))
        measured("single texts alone", alone)
        singles, lists = asyncio.run(beside(turn))
        measured("single texts beside lists", singles)
        measured("lists", lists)
        print(f"p99 {1000 * alone.quantile(0.99):.0f} ms alone, {1000 * singles.quantile(0.99):.0f} ms beside lists: "
              f"{1000 * (singles.quantile(0.99) - alone.quantile(0.99)):.0f} ms more; refused: "
              f"{sum(singles.statuses.values()) - singles.statuses[200]}", flush=True)
    print(batches(port))


def batches(port: int) -> str:
    """Return how many answers had computed for up to which time, as the server says: most had one batch."""
    name, counts = 'te_request_inference_duration_bucket{le="', [0.0]
    parts = []
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        for line in answer.read().decode().splitlines():
            if line.startswith(name):
                bound, _, count = line[len(name):].partition('"} ')
                counts.append(float(count))
                if counts[-1] > counts[-2]:
                    parts.append(f"{counts[-1] - counts[-2]:.0f} up to {float(bound):.3f} s")
    return f"answers by the seconds of their batches: {', '.join(parts)}"


def memory(port: int, peer: Peer, args: argparse.Namespace) -> None:
    """Print the growth of the server's resident memory while 16 clients send requests of 1 to 64 texts."""
    rng, texts = np.random.default_rng(1), sentences()
    posts = [peer.posts([texts[i] for i in rng.integers(len(texts), size=count)], int(count))[0]
             for count in rng.choice([1, 1, 1, 2, 8, 32, 64], size=500)]
    posts += [post("/v1/embeddings", b'{"input": 1e999}', 1), post("/embed", b"{", 1)]
    pid = server_of(port)
    asyncio.run(closed(port, 16, posts, args.seconds / 10))     # what fills once
    times, sizes, begin = [], [], time.monotonic()
    while (now := time.monotonic() - begin) < args.seconds:
        load = asyncio.run(closed(port, 16, posts, 2.0))
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        times.append(now)
        sizes.append(next(int(line.split()[1]) / 1000 for line in lines if line.startswith("Anonymous")))
    measured("the last requests", load)
    print(*_growth(np.array(times), np.array(sizes)))


def _growth(times: np.ndarray, sizes: np.ndarray) -> tuple[str, ...]:
    from tests.soak.measure import growth

    line = growth(times, sizes)
    return (f"memory: {sizes[0]:.1f} MB at first, {sizes.min():.1f} to {sizes.max():.1f};",
            f"growth {line.slope:+.1f} +- {line.error:.1f} MB in an hour, of {len(sizes)} samples")


def main() -> None:
    """Start a server, and put it under pressure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("overload", "fairness", "memory"))
    parser.add_argument("--minilm", type=Path, required=True, help="folder of the real all-MiniLM-L6-v2")
    parser.add_argument("--precision", default="int8")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--max-wait", type=float, default=2.0)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=60.0)
    args = parser.parse_args()
    peer = peer_of(args)
    with tempfile.TemporaryDirectory() as folder, started(
            peer, 18190, args.threads, Path(folder), Path(folder) / "log") as port:
        {"overload": overload, "fairness": fairness, "memory": memory}[args.what](port, peer, args)


if __name__ == "__main__":
    main()
