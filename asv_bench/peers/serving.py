"""Measure servers of embeddings beside each other, with all-MiniLM-L6-v2, on the cores that the clients use, too.

    cd asv_bench && python -m peers.serving --minilm FOLDER [--infinity ENVIRONMENT] [--llama PATH_OF_LLAMA_SERVER]

It needs the environment of `make peers` with the extra [server], fastapi and uvicorn. Each cell is measured in turns,
and the best of them counts, because other load only makes a number worse. `load.py` says how requests are sent.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine import Engine

from .libraries import OnnxRuntime
from .llama_cpp import LlamaCpp
from .load import Load, Post, closed, open_loop, post
from .machine import environment
from .results import ROOT, Steal, machine
from .work import sentences, write_folders

CELLS = ("8x1", "64x1", "8x32", "64x32", "1x1")
"""Numbers of clients, and of texts in a request; 64x1 is always measured, because it sets the rate of the open loop."""
SHARE = 0.7
"""The rate of the open loop, as a share of the smallest capacity of all servers."""
START = 300.0
"""Seconds that a server has to start."""


@dataclass
class Peer:
    """One server: how it is started, and asked."""

    name: str
    command: Callable[[int], list[str]]
    path: str = "/v1/embeddings"
    fields: dict[str, Any] = field(default_factory=dict)
    """The fields of a request beside its texts."""

    def posts(self, texts: list[str], count: int) -> list[Post]:
        """Return requests with `count` of the texts each."""
        found = []
        for i in range(0, len(texts) - count + 1, count):
            own = texts[i : i + count]
            body = self.fields | {"input": own if count > 1 else own[0]}
            found.append(post(self.path, json.dumps(body).encode(), count))
        return found


def peers(root: Path, precision: str, threads: int, infinity: Path | None, llama: Path | None) -> list[Peer]:
    """Return the servers of a precision. root: the folder of MiniLM's files."""
    base64 = {"model": "m", "encoding_format": "base64"}
    found = [
        Peer("encoder-engine", lambda port: [
            sys.executable, "-m", "engine", "serve", str(root / "hf"), "--served-model-name", "m",
            "--port", str(port), "--threads", str(threads), "--precision", precision, "--max-wait", "30"],
             fields=base64 | {"truncate": True}),
        Peer("FastAPI, ONNX Runtime, tokenizers", lambda port: [
            sys.executable, "-m", "peers.serving_baseline", str(root / f"{precision}.onnx"),
            str(root / "hf/tokenizer.json"), str(threads), str(port)])]
    if infinity is not None and precision == "float32":
        found.append(Peer("infinity 0.0.78", lambda port: [
            str(infinity / "bin/infinity_emb"), "v2", "--model-id", str(root / "hf"), "--served-model-name", "m",
            "--port", str(port), "--host", "127.0.0.1", "--engine", "torch", "--device", "cpu", "--dtype", "float32",
            "--no-bettertransformer", "--no-compile"], path="/embeddings", fields=base64))
    if llama is not None:
        found.append(Peer("llama-server", lambda port: [
            str(llama), "-m", str(root / f"{precision}.gguf"), "--embedding", "--pooling", "mean", "--port", str(port),
            "-t", str(threads), "-tb", str(threads), "-np", "8", "-c", "4096", "-b", "4096", "-ub", "4096",
            "--log-disable"], fields=base64))
    return found


@contextmanager
def started(peer: Peer, port: int, threads: int, root: Path, log: Path) -> Iterator[int]:
    """Yield the port of a server that answers."""
    with log.open("wb") as written:
        process = subprocess.Popen(peer.command(port), stdout=written, stderr=subprocess.STDOUT,
                                   env=os.environ | environment(peer.name, threads, root))
        try:
            end = time.monotonic() + START
            one = peer.posts(["A kitten sleeps."], 1)[0]
            while not answers(port, peer, one):
                if process.poll() is not None or time.monotonic() > end:
                    raise RuntimeError(f"{peer.name} did not start; {log} says why")
                time.sleep(0.3)
            yield port
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def answers(port: int, peer: Peer, one: Post) -> bool:
    """Return whether a server gives a vector."""
    body = one.data.partition(b"\r\n\r\n")[2]
    request = urllib.request.Request(f"http://127.0.0.1:{port}{peer.path}", body, {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return len(json.load(answer)["data"][0]["embedding"]) > 0
    except (OSError, urllib.error.HTTPError, KeyError):
        return False


def loop_rate(engine: Engine, texts: list[str], seconds: float) -> float:
    """Return the sentences a second of a loop over `Engine.encode` with 32 texts a call."""
    begin, count = time.perf_counter(), 0
    while time.perf_counter() < begin + seconds:
        start = count % (len(texts) - 31)
        engine.encode(texts[start : start + 32], normalize_embeddings=True)
        count += 32
    return count / (time.perf_counter() - begin)


def better(old: Load | None, new: Load) -> Load:
    """Return the run with the larger rate."""
    return new if old is None or new.rate > old.rate else old


def measure(root: Path, precision: str, args: argparse.Namespace) -> dict[str, Any]:
    """Return the numbers of all servers of a precision."""
    texts, found = sentences(), {}
    loop, capacity = 0.0, {}
    with ExitStack() as stack:
        engine = stack.enter_context(Engine.load(root / "hf", precision=precision, threads=args.threads))
        running = [(peer, stack.enter_context(started(peer, 18200 + i, args.threads, root, args.files / f"{i}.log")))
                   for i, peer in enumerate(peers(root, precision, args.threads, args.infinity, args.llama))]
        best: dict[tuple[str, str], Load] = {}
        for _ in range(args.turns):
            loop = max(loop, loop_rate(engine, texts, args.seconds))
            for cell in args.cells:
                clients, count = map(int, cell.split("x"))
                for peer, port in running:
                    run = asyncio.run(closed(port, clients, peer.posts(texts, count), args.seconds))
                    best[peer.name, cell] = better(best.get((peer.name, cell)), run)
                    print(f"{peer.name}, {cell}: {run.as_json()}", file=sys.stderr, flush=True)
        capacity = {peer.name: best[peer.name, "64x1"].rate for peer, _ in running}
        rate = SHARE * min(capacity.values())
        for turn in range(args.turns):
            for peer, port in running:
                run = asyncio.run(open_loop(port, rate, peer.posts(texts, 1), 2 * args.seconds, turn))
                old = best.get((peer.name, "open loop"))
                if old is None or run.quantile(0.99) < old.quantile(0.99):
                    best[peer.name, "open loop"] = run
        for peer, _ in running:
            found[peer.name] = {cell: load.as_json() for (name, cell), load in best.items() if name == peer.name}
    return {"precision": precision, "Engine.encode, 32 texts a call": round(loop, 1), "open loop, requests a second":
            round(rate, 1), "servers": found}


def table(numbers: list[dict[str, Any]], cells: list[str]) -> str:
    """Return the numbers as Markdown: sentences a second, and the 99th percentile of the latency."""
    lines, heads = [], [f"{cell.replace('x', ' clients, ')} a request" for cell in cells]
    for one in numbers:
        lines += [f"{one['precision']}; a loop over `Engine.encode` with 32 texts a call: "
                  f"{one['Engine.encode, 32 texts a call']:,.0f} sentences/s", "",
                  f"| server | {' | '.join(heads)} | open loop, {one['open loop, requests a second']:,.0f} requests/s: "
                  "p50, p99 |", f"|{'---|' * (len(cells) + 2)}"]
        for name, rows in one["servers"].items():
            shown = [f"{rows[cell]['texts_per_second']:,.0f} (p99 {rows[cell]['p99_ms']:,.0f} ms)" for cell in cells]
            own = rows["open loop"]
            lines.append(f"| {name} | {' | '.join(shown)} | {own['p50_ms']:,.1f}, {own['p99_ms']:,.1f} ms |")
        lines.append("")
    return "\n".join(lines)


def main() -> None:
    """Measure, write the numbers as JSON, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minilm", type=Path, required=True, help="folder of the real all-MiniLM-L6-v2")
    parser.add_argument("--infinity", type=Path, help="an environment with infinity-emb[server,torch] 0.0.78")
    parser.add_argument("--llama", type=Path, help="the program llama-server")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--precisions", nargs="+", default=["float32", "int8"])
    parser.add_argument("--cells", nargs="+", default=[*CELLS], choices=CELLS, help="clients x texts of a request")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each cell of a turn")
    parser.add_argument("--files", type=Path, default=ROOT / "build/peers/models", help="folder for the models")
    parser.add_argument("--out", type=Path, default=ROOT / "build/peers/serving.json")
    args = parser.parse_args()
    write_folders(args.files, args.minilm, ["MiniLM"])
    root = args.files / "MiniLM"
    OnnxRuntime.prepare(root)
    if args.llama is not None:
        LlamaCpp.prepare(root)
    steal = Steal()
    rows = [measure(root, precision, args) for precision in args.precisions]
    numbers = {"machine": machine(args.threads) | {"steal": steal.share()}, "rows": rows}
    args.out.write_text(json.dumps(numbers, indent=1) + "\n", encoding="utf-8")
    print(table(rows, args.cells))


if __name__ == "__main__":
    main()
