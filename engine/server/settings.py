"""`Settings` of a server, and all limits on what it reads; docs/limits.md lists them, as a test checks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ..base.arguments import positive_int
from ..base.errors import EngineError, InputError, shown

MAX_BODY = 16_777_216
"""Limit on the bytes of the body of a request; `--max-body-bytes` changes it."""
MAX_HEADER = 32_768
"""Limit on the bytes of the request line and the headers."""
MAX_HEADERS = 256
"""Limit on the headers of a request: each takes some 170 bytes more than it has."""
MAX_HELD = 536_870_912
"""Limit on the bytes that all requests take at one time: bodies, values, tokens, results and answers."""
MAX_SKIPPED = 134_217_728
"""Limit on the bytes of a body that are read and thrown away behind an early answer, so that the client sees it."""
MAX_TOKENIZED = 262_144
"""Limit on the characters of a request to `/tokenize`, whose answer is a hundred times as long, and of the hypotheses
of one to `/zero-shot`, which are tokenized at once."""
MAX_LABELS = 1024
"""Limit on the labels of a request to `/zero-shot`, with each of which each text is read."""
MAX_DECODED = 262_144
"""Limit on the token ids of a request to `/decode`."""
MAX_CHOICES = 128
"""Limit on the answers of one request: its prompts, times `n`."""
MAX_IMAGES = 256
"""Limit on the images of a request."""
MAX_IMAGE_PIXELS = 12_582_912
"""Limit on the pixels of an image in a request, which take 144 MB of memory while it is read."""
MAX_RECORDING = 268_435_456
"""Limit on the bytes of a body with a recording; `--max-recording-bytes` changes it."""
MAX_ON_DISK = 4_294_967_296
"""Limit on the bytes on disk of all recordings at one time: files, and their samples."""
MAX_FIELDS = 65_536
"""Limit on the bytes of the fields of a form beside its file, of which each counts 1,024 more."""
MAX_KEYS = 10_000
"""Limit on the keys of a file of keys."""
MAX_KEY = 1_000
"""Limit on the characters of a key."""
LOG_BYTES = 1_048_576
"""The most bytes of lines of the log that wait to be written; later lines are lost, and counted."""
CONNECTIONS = 16_384
"""The most connections that are open at one time, where the limit of descriptors allows as many."""
HEADER_SECONDS = 10.0
"""How long the headers of a request may take from their first byte."""
BODY_SECONDS = 10.0
"""How long the body of a request may take."""
IDLE_SECONDS = 75.0
"""How long a connection stays open without a request; and how long a client may read nothing of an answer."""
COMMENT_SECONDS = 15.0
"""How long a stream may be silent; a comment, which clients leave out, then keeps proxies from ending it."""


class Limit(EngineError):
    """The error for data of one client, or of all clients together, beyond a limit."""


def check_size(what: str, size: int, limit: int, advice: str) -> None:
    """Raise `Limit` if `size` bytes are above a limit. what, advice: for the message."""
    if size > limit:
        raise Limit(f"{what} has {size:,} bytes, and at most {limit:,} are read; {advice}")


@dataclass(frozen=True)
class Settings:
    """How a server listens, and what it accepts. Times are in seconds."""

    host: str = "127.0.0.1"
    port: int = 8080
    uds: str | None = None
    """The path of a Unix socket, in place of host and port."""
    names: tuple[str, ...] = ("model",)
    """The names of the first model in requests; answers have the first of them."""
    silent_names: tuple[str, ...] = ()
    """Other names of it that requests may use and no answer shows, such as a path."""
    max_batch_tokens: int = 1024
    max_wait: float = 2.0
    """The most seconds that a request may wait for its first batch or its first token."""
    timeout: float = 60.0
    """The most seconds from a request to its answer, for models that compute vectors or ranks."""
    text_timeout: float = 600.0
    """The most seconds for a text that a model writes, a stream included."""
    max_body: int = MAX_BODY
    max_recording: int = MAX_RECORDING
    header_seconds: float = HEADER_SECONDS
    body_seconds: float = BODY_SECONDS
    idle_seconds: float = IDLE_SECONDS

    def __post_init__(self) -> None:
        if type(self.port) is not int or not 0 <= self.port <= 65535:
            raise InputError(f"--port must be from 0 to 65535, not {shown(self.port)}; 0 takes a free one")
        if not all(self.names):
            raise InputError("--served-model-name is empty; give a name, or leave it out")
        for name in self.names:
            # Python turns bytes of the command line that are no UTF-8 into surrogates.
            if any("\ud800" <= letter <= "\udfff" for letter in name):
                raise InputError(f"--served-model-name {shown(name)} is no UTF-8, which answers are written in; give "
                                 "another name")
        for option, number in (("--max-batch-tokens", self.max_batch_tokens), ("--max-body-bytes", self.max_body),
                               ("--max-recording-bytes", self.max_recording)):
            positive_int(option, number)
        for option, seconds in (("--max-wait", self.max_wait), ("--timeout", self.timeout),
                                ("--timeout", self.text_timeout)):
            check_seconds(option, seconds)


def check_seconds(name: str, value: Any) -> float:
    """Return `value` as a number of seconds above 0; raises `InputError`. name: of the option or the header."""
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise InputError(f"{name} must be a number of seconds above 0, not {shown(value)}")
    return seconds
