"""Stop a server while clients ask it: python -m tests.server.stopping 20. All requests that it accepts are answered.

With `--streams` it is a server of a model that writes texts, and each stream ends with its last event, or an error.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from engine import save

from ..tools.encoders import save_encoder
from ..tools.paths import ROOT
from ..tools.text_models import text_weights
from ..tools.tiny_models import random_model
from ..tools.tiny_text import tiny_text

CLIENTS = 16


class Process:
    """A server in a process of its own."""

    def __init__(self, model: Path, *options: str, descriptors: int | None = None):
        """descriptors: the hard limit of descriptors."""
        limited = [] if descriptors is None else ["bash", "-c", f"ulimit -n {descriptors}; exec \"$@\"", "-"]
        self._process = subprocess.Popen(
            [*limited, sys.executable, "-m", "engine", "serve", str(model), "--port", "0", "--threads", "1", *options],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT)})
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if "http://" not in line:
            raise AssertionError(self._process.communicate())
        self.port = int(line.rpartition(":")[2])
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stderr is not None
        self.lines += self._process.stderr

    def stop(self, sig: int = signal.SIGTERM) -> tuple[int, list[dict[str, object]]]:
        """Send a signal, and return the status of the process and the lines of its log."""
        self._process.send_signal(sig)
        status = self._process.wait(60)
        self._reader.join()
        self._process.stdout.close()
        self._process.stderr.close()
        return status, [json.loads(line) for line in self.lines]


VECTORS = "/embed", {"inputs": ["the cat sat on a mat"] * 20}
STREAM = "/v1/completions", {"prompt": [70, 71], "max_tokens": 80, "ignore_eos": True, "stream": True}


def ask(port: int, stop: threading.Event, statuses: list[int], lost: list[str], asked: tuple[str, dict[str, object]]
        ) -> None:
    """Send requests one after the other until the server refuses connections."""
    path, body = asked
    while not stop.is_set():
        connection = HTTPConnection("127.0.0.1", port, timeout=60)
        try:
            while not stop.is_set():
                connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
                answer = connection.getresponse()
                data = answer.read()
                if answer.getheader("content-type") == "text/event-stream":
                    last = data.decode().removesuffix("\n\n").rpartition("\n\n")[2]
                    assert last == "data: [DONE]" or '"error"' in last, last
                else:
                    json.loads(data)
                statuses.append(answer.status)
        except (OSError, HTTPException) as error:
            lost.append(type(error).__name__)
            if isinstance(error, ConnectionRefusedError):
                return
        finally:
            connection.close()


def once(model: Path, seed: int, asked: tuple[str, dict[str, object]] = VECTORS) -> dict[str, int]:
    """Stop a server in full flow, and return how many answers clients got; raises `AssertionError`."""
    process, stop = Process(model), threading.Event()
    statuses: list[int] = []
    lost: list[str] = []
    threads = [threading.Thread(target=ask, args=(process.port, stop, statuses, lost, asked)) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    end = time.monotonic() + 30
    while len(statuses) < 3 * CLIENTS and time.monotonic() < end:
        time.sleep(0.01)
    time.sleep(random.Random(seed).random() / 5)
    status, lines = process.stop()
    stop.set()
    for thread in threads:
        thread.join()
    accepted = [line["status"] for line in lines if line["event"] == "request"]
    assert status == 0, lines[-3:]
    assert sorted(accepted) == sorted(statuses), (len(accepted), len(statuses))
    assert set(statuses) <= {200, 429, 503}, set(statuses)
    assert lines[-1]["event"] == "stop"
    return {str(one): statuses.count(one) for one in set(statuses)} | {"lost": len(lost)}


def write_model(folder: Path) -> Path:
    """Write a tiny model, and return its path."""
    path = folder / "model.npz"
    save_encoder(random_model(tiny_text()), path)
    return path


def write_text_model(folder: Path) -> Path:
    """Write a tiny model that writes texts, and return its path."""
    path = folder / "text.npz"
    save(text_weights(), path)
    return path


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        streams = "--streams" in sys.argv
        path = (write_text_model if streams else write_model)(Path(folder))
        for i in range(int(sys.argv[1])):
            print(once(path, i, STREAM if streams else VECTORS), flush=True)
