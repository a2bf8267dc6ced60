"""Stop a server in full flow: python -m tests.server.stopping 20. All requests that it accepts are answered.

It serves a model of each kind. Clients ask for chats, completions, transcriptions and vectors, and for streams. Each
stream ends with its last event, or with an error. Every second server gets SIGINT twice, and does not wait for answers.
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
from collections import Counter
from collections.abc import Sequence
from functools import partial
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from engine import save

from ..tools.encoders import save_encoder
from ..tools.paths import ROOT
from ..tools.speech import timed
from ..tools.text_models import HELLO, text_weights
from ..tools.threads import begin
from ..tools.tiny_models import random_model
from ..tools.tiny_text import tiny_text
from .bodies import CHAT, COMPLETE, FORM, TRANSCRIBE, form, sound

CLIENTS = 16


class Process:
    """A server in a process of its own."""

    def __init__(self, models: Sequence[Path], *options: str, descriptors: int | None = None):
        """descriptors: the hard limit of descriptors."""
        limited = [] if descriptors is None else ["bash", "-c", f"ulimit -n {descriptors}; exec \"$@\"", "-"]
        self._process = subprocess.Popen(
            [*limited, sys.executable, "-m", "engine", "serve", *map(str, models), "--port", "0", "--threads", "1",
             *options],
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

    def stop(self, *signals: int, rest: float = 0.0) -> tuple[int, list[dict[str, object]]]:
        """Send signals, and return the status of the process and the lines of its log. rest: seconds between them."""
        for i, sig in enumerate(signals):
            time.sleep(rest * bool(i))
            self._process.send_signal(sig)
        status = self._process.wait(60)
        self._reader.join()
        self._process.stdout.close()
        self._process.stderr.close()
        return status, [json.loads(line) for line in self.lines]


JSON = "application/json"
TEXT = {"seed": 1, "max_tokens": 80, "ignore_eos": True}
SOUND = sound(31)


def transcribes(**fields: str) -> tuple[str, str, bytes]:
    """Return the path, the type and the body of a request for the text of a recording."""
    return TRANSCRIBE, FORM["content-type"], form(SOUND, **fields)


def asks(path: str, **fields: object) -> tuple[str, str, bytes]:
    """Return the path, the type and the body of a request."""
    return path, JSON, json.dumps(fields).encode()


REQUESTS = (asks(CHAT, messages=HELLO, stream=True, **TEXT),
            asks(COMPLETE, prompt=[70, 71], stream=True, n=2, **TEXT), transcribes(stream="true"),
            asks("/embed", inputs=["the cat sat on a mat"] * 20),
            asks(CHAT, messages=HELLO, **TEXT), transcribes(response_format="srt"),
            asks(COMPLETE, prompt=["a", "b"], **TEXT), asks("/apply-template", messages=HELLO))


def check_whole(content_type: str, data: bytes) -> None:
    """Check that an answer is whole, of which a stream ends with its last event or with an error."""
    if content_type == "text/event-stream":
        last = data.decode().removesuffix("\n\n").rpartition("\n\n")[2]
        assert last == "data: [DONE]" or '"transcript.text.done"' in last or '"error"' in last, last
    elif content_type == JSON:
        json.loads(data)


def ask(port: int, first: int, answers: list[tuple[int, int]], lost: list[str]) -> None:
    """Send requests one after the other until the server refuses connections. answers: gets number and status."""
    number = first
    while True:
        connection = HTTPConnection("127.0.0.1", port, timeout=60)
        try:
            while True:
                path, kind, body = REQUESTS[number % len(REQUESTS)]
                number += 1
                connection.request("POST", path, body, {"content-type": kind})
                answer = connection.getresponse()
                check_whole(answer.getheader("content-type", ""), answer.read())
                answers.append(((number - 1) % len(REQUESTS), answer.status))
        except (OSError, HTTPException) as error:
            lost.append(type(error).__name__)
            if isinstance(error, ConnectionRefusedError):
                return
        except AssertionError as error:
            lost.append(str(error))
            return
        finally:
            connection.close()


def once(models: Sequence[Path], seed: int, *signals: int) -> dict[str, int]:
    """Stop a server in full flow, and return how often clients got each status; raises `AssertionError`."""
    process, rng = Process(models), random.Random(seed)
    answers: list[tuple[int, int]] = []
    lost: list[str] = []
    clients = [begin(partial(ask, process.port, i, answers, lost)) for i in range(CLIENTS)]
    end = time.monotonic() + 60
    while (len({number for number, status in [*answers] if status == 200}) < len(REQUESTS)
           and time.monotonic() < end):     # until each kind has an answer
        time.sleep(0.01)
    time.sleep(rng.random() / 5)
    status, lines = process.stop(*signals, rest=rng.random() / 20)
    for client in clients:
        client.result()
    statuses = Counter(status for _, status in answers)
    accepted = Counter(line["status"] for line in lines if line["event"] == "request")
    assert status == 0, lines[-3:]
    assert accepted == statuses, (accepted, statuses, lost)
    assert set(statuses) <= {200, 429, 503}, statuses
    assert {number for number, status in answers if status == 200} == {*range(len(REQUESTS))}
    assert lines[-1]["event"] == "stop"
    return {str(one): count for one, count in statuses.items()} | {"lost": len(lost)}


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


def write_speech_model(folder: Path) -> Path:
    """Write a tiny model of speech, and return its path."""
    path = folder / "speech.npz"
    save(timed(), path)
    return path


MAKERS = {"text": write_text_model, "vectors": write_model, "speech": write_speech_model}
"""What writes a tiny model of each kind."""


def write_models(folder: Path) -> list[Path]:
    """Write a tiny model of each kind, and return their paths."""
    return [write(folder) for write in MAKERS.values()]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        models = write_models(Path(folder))
        for i in range(int(sys.argv[1])):
            print(once(models, i, *([signal.SIGINT] * 2 if i % 2 else [signal.SIGTERM])), flush=True)
