"""A server in a thread of the test, on a real socket, and clients for it."""

import asyncio
import json
import socket
import threading
from contextlib import contextmanager
from http.client import HTTPConnection
from types import SimpleNamespace

from engine import Generator, Transcriber
from engine.server import logs
from engine.server.keys import ApiKeys
from engine.server.logs import Writer
from engine.server.mapped import MappedFiles
from engine.server.metrics import Metrics
from engine.server.served import Named, Served
from engine.server.service import Service
from engine.server.settings import CONNECTIONS, Settings
from engine.server.speech_service import SpeechService
from engine.server.start import BACKLOG, Server, bind
from engine.server.text_service import TextService


class _Silent(Writer):
    def write(self, line):
        pass


logs.WRITER = _Silent()
"""Servers of tests write no log: another thread would write it to whatever standard error pytest has at that moment."""
JSON = {"content-type": "application/json"}


class Client:
    """One keep-alive connection."""

    timeout = 30.0

    def __init__(self, port):
        self.port, self._connection = port, None

    def send(self, method, path, body=None, headers=JSON):
        """Return the answer: status, headers and data, which is None or a value of JSON, or text."""
        if self._connection is None:
            self._connection = HTTPConnection("127.0.0.1", self.port, timeout=self.timeout)
        self._connection.request(method, path, body if isinstance(body, (bytes, type(None))) else json.dumps(body),
                                 headers)
        answer = self._connection.getresponse()
        data = answer.read()
        found = {name.lower(): value for name, value in answer.getheaders()}
        if found.get("content-type") == "application/json":
            data = json.loads(data)
        return SimpleNamespace(status=answer.status, headers=found, data=data)

    def post(self, path, body, **headers):
        return self.send("POST", path, body, JSON | {name.replace("_", "-"): str(one) for name, one in headers.items()})

    def get(self, path, **headers):
        return self.send("GET", path, None, headers)

    def close(self):
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def raw(port, *parts, wait=30.0):
    """Send bytes on a connection of its own, and return everything that comes back until the server ends it."""
    with socket.create_connection(("127.0.0.1", port), timeout=wait) as connection:
        for part in parts:
            connection.sendall(part)
        found = b""
        while data := connection.recv(2**16):
            found += data
        return found


def make_service(model, settings, max_wait=1000.0, beside=None):
    """Return the service of a model of any kind."""
    if isinstance(model, Transcriber):
        return SpeechService(model, max_wait=max_wait, beside=beside)
    if isinstance(model, Generator):
        return TextService(model, max_wait=max_wait, beside=beside)
    return Service(model, max_batch_tokens=settings.max_batch_tokens, max_wait=max_wait, beside=beside)


@contextmanager
def serving(model, *, service=None, keys=(), max_wait=1000.0, files=None, connections=CONNECTIONS, beside=(),
            **settings):
    """Yield a `Client` of a server in another thread, which also has `served`, `server` and `model`.

    beside: other models, which are called "beside 0" and so on.
    """
    own = Settings(port=0, names=("tiny", "other name"), **settings)
    served_service = service or make_service(model, own, max_wait)
    others = [Named(make_service(one, own, max_wait, served_service), (f"beside {i}",)) for i, one in enumerate(beside)]
    served = Served(served_service, own, ApiKeys(list(keys)), Metrics(
        [served_service, *(one.service for one in others)], [{"model": "tiny"}] * (1 + len(others))),
        files=MappedFiles(files), others=others)
    with bind(own) as listener:
        listener.listen(BACKLOG)
        client = Client(listener.getsockname()[1])
        server = Server(served, connections=connections)
        thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listener])))
        thread.start()
        try:
            client.served, client.server, client.model = served, server, model
            yield client
        finally:
            client.close()
            server.stop()
            thread.join()
            served.close()
