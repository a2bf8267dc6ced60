"""A server on this machine that speaks the protocol of the Hugging Face hub, for a few repositories in folders.

    GET  /api/models/NAME[/revision/REV]            the commit, and the list of files
    GET  /api/models/NAME/tree/COMMIT               the files with their sizes and hashes
    HEAD, GET  /NAME/resolve/REV/FILE               a file; large ones answer with a redirect to another host
    GET  /blobs/SHA256                              the contents, also from a byte on

What fails, and how, is set by the attributes of `Hub`.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

LARGE = 10_000
"""Files of more bytes than this are stored apart, as the hub stores them in Git LFS."""
TOKEN = "hf_of_the_tests"


@cache
def sha1(data: bytes) -> str:
    """Return the SHA-1 of a file, which is computed once: a file may be a whole model, and be asked for often."""
    return hashlib.sha1(data).hexdigest()


@cache
def sha256(data: bytes) -> str:
    """Return the SHA-256 of a file, which is computed once."""
    return hashlib.sha256(data).hexdigest()


class Hub:
    """The repositories, what the server shall do wrong, and what it was asked."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.repositories: dict[str, dict[str, bytes]] = {}
        self.gated: set[str] = set()
        self.private: set[str] = set()
        self.status: int | None = None
        """An HTTP status that every request gets; None for the right one."""
        self.cut: Callable[[str], bool] = lambda blob: False
        """Whether to close the connection in the middle of a blob with this hash."""
        self.wrong: dict[str, Any] = {}
        """What to answer in place of the right "sha", "siblings", "oid", "ETag" or "X-Repo-Commit"."""
        self.packed: dict[str, bytes] = {}
        """The bodies of files whose contents come with gzip, by their names."""
        self.requests: list[str] = []
        """The method and the path of each request."""

    def add(self, name: str, folder: Path) -> None:
        """Make a repository of the files of a folder."""
        self.repositories[name] = {path.relative_to(folder).as_posix(): path.read_bytes()
                                   for path in sorted(folder.rglob("*")) if path.is_file()}

    def commit(self, name: str) -> str:
        """Return the commit of a repository, which depends on its files."""
        files = self.repositories[name]
        return sha1(repr([(file, sha1(files[file])) for file in sorted(files)]).encode())

    def asked_for(self) -> list[str]:
        """Return the paths of the files that were asked for, in the order in which they were first."""
        found = (re.fullmatch(r"HEAD /[^/]+/[^/]+/resolve/[^/]+/(.*)", line) for line in self.requests)
        return list(dict.fromkeys(match[1] for match in found if match))


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        hub, path = self.server.hub, unquote(urlsplit(self.path).path)
        hub.requests.append(f"{self.command} {path}")
        if hub.status is not None:
            self._send(hub.status, b"")
        elif match := re.fullmatch(r"/blobs/([0-9a-f]{64})", path):
            self._blob(match[1])
        elif match := re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/(revision|tree)/([^/]+).*)?", path):
            if self._allowed(match[1], match[3] or "main", gate=False):
                self._json(match[1], match[2] == "tree")
        elif match := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            if self._allowed(match[1], match[2]):
                self._file(match[1], match[3])
        else:
            self._send(404, b"")

    def _allowed(self, name: str, revision: str, gate: bool = True) -> bool:
        """Refuse what the hub refuses, with its headers; return whether nothing is refused.

        gate: whether gated repositories are refused, of which everybody may see the list of files.
        """
        hub = self.server.hub
        may_read = self.headers.get("authorization") == f"Bearer {TOKEN}"
        if name not in hub.repositories or (name in hub.private and not may_read):
            self._send(401, b"", {"X-Error-Message": "Invalid username or password."})
        elif gate and name in hub.gated and not may_read:
            self._send(403, b"", {"X-Error-Code": "GatedRepo", "X-Error-Message": f"Access to {name} is restricted."})
        elif revision not in ("main", hub.commit(name)):
            self._send(404, b"", {"X-Error-Code": "RevisionNotFound"})
        else:
            return True
        return False

    def _json(self, name: str, tree: bool) -> None:
        files = self.server.hub.repositories[name]
        if tree:
            entries = [{"type": "file", "path": file, "size": len(data), "oid": sha1(data)}
                       | ({"lfs": {"oid": sha256(data), "size": len(data), "pointerSize": 130}}
                          if len(data) > LARGE else {}) for file, data in files.items()]
            return self._send(200, json.dumps(entries).encode())
        found = {"id": name, "modelId": name, "sha": self.server.hub.commit(name), "private": False, "gated": False,
                 "siblings": [{"rfilename": file} for file in files], "tags": [], "downloads": 0, "likes": 0}
        return self._send(200, json.dumps({key: self.server.hub.wrong.get(key, found[key]) for key in found}).encode())

    def _file(self, name: str, file: str) -> None:
        hub = self.server.hub
        data = hub.repositories[name].get(file)
        headers = {"X-Repo-Commit": hub.commit(name)}
        if data is None:
            return self._send(404, b"", headers | {"X-Error-Code": "EntryNotFound"} | hub.wrong)
        if file in hub.packed and self.command == "GET":
            return self._send(200, hub.packed[file], headers | {"Content-Encoding": "gzip"})
        if len(data) <= LARGE:
            return self._send(200, data, headers | {"ETag": f'"{sha1(data)}"'} | hub.wrong)
        blob = sha256(data)
        place = f"{hub.url.replace('127.0.0.1', 'localhost')}/blobs/{blob}"
        return self._send(302, b"", headers | {"Location": place, "X-Linked-Etag": f'"{blob}"',
                                               "X-Linked-Size": str(len(data))}
                          | hub.wrong)

    def _blob(self, blob: str) -> None:
        hub = self.server.hub
        [data] = {data for files in hub.repositories.values() for data in files.values()
                  if sha256(data) == blob}
        start = int((re.fullmatch(r"bytes=(\d+)-", self.headers.get("range") or "") or ["", 0])[1])
        headers = {"ETag": f'"{blob}"'}
        if start:
            headers["Content-Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
        self._send(206 if start else 200, data[start:], headers, cut=hub.cut(blob))

    def _send(self, status: int, data: bytes, headers: dict[str, str] | None = None, cut: bool = False) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data[: len(data) // 2] if cut else data)
        if cut:
            self.close_connection = True


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    hub: Hub


@contextmanager
def running() -> Iterator[Hub]:
    """Run a hub without repositories, whose address is its `url`."""
    with _Server(("127.0.0.1", 0), _Handler) as server:
        server.hub = Hub(f"http://127.0.0.1:{server.server_address[1]}")
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield server.hub
        finally:
            server.shutdown()
            thread.join()


def environment(hub: Hub, home: Path) -> dict[str, str]:
    """Return the environment of a process that uses a hub, and keeps its cache in a folder."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "HUGGING"))}
    return kept | {"HF_ENDPOINT": hub.url, "HF_HOME": str(home)}
