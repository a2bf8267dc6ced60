"""uvicorn's protocol with what it lacks: limits of headers and of time, and errors as JSON.

An ASGI application sees a request when its headers are whole, so that nothing behind this class can limit them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import httptools
import orjson
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from . import logs
from .connections import Connections
from .refusals import STATUSES, Refusal
from .settings import CONNECTIONS, MAX_HEADER, MAX_HEADERS, MAX_SKIPPED, Limit, Settings, check_size

ABORT = "engine.abort"
"""The extension of a scope with a function that ends the connection at once."""
WATCH = "engine.watch"
"""The extension of a scope with `Protocol.watch`."""
WRITE = "engine.write"
"""The extension of a scope with `Protocol.write_chunk`."""
_LONG = 2**15
"""Bytes of a part of an answer that is written at once."""
_PIECE = 2**11
"""The most bytes that are parsed at a time beside those of a body: they may hold a hundred requests, of 2 KB each."""


class Joined:
    """A transport that writes all parts of an answer with one system call: its header, and its body."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop, closing: Callable[[], None]):
        """closing: called when the transport closes as soon as all is written."""
        self._transport, self._loop, self._closing = transport, loop, closing
        self._parts: list[bytes] = []
        self._reads = True

    def write(self, data: bytes) -> None:
        """Write data when the tasks that run now have gone on; a long part at once, so that its task can wait."""
        if not self._parts:
            self._loop.call_soon(self._flush)
        self._parts.append(data)
        if len(data) > _LONG:
            self._flush()

    def write_now(self, data: bytes) -> None:
        """Write data, behind what waits, at once."""
        self._parts.append(data)
        self._flush()

    def close(self) -> None:
        """Close the connection when all is written."""
        self._flush()
        if not self._transport.is_closing():
            self._transport.close()
            self._closing()

    def hold_reading(self) -> None:
        """Read nothing more, whatever `resume_reading` is called for, until `let_reading` is."""
        self._reads = False
        self._transport.pause_reading()

    def let_reading(self) -> None:
        """Let `resume_reading` read on."""
        self._reads = True

    def resume_reading(self) -> None:
        if self._reads:
            self._transport.resume_reading()

    def write_eof(self) -> None:
        self._flush()
        self._transport.write_eof()

    def _flush(self) -> None:
        if self._parts:
            data, self._parts = b"".join(self._parts), []
            self._transport.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class Protocol(HttpToolsProtocol):
    """One connection.

    The headers of a request have a limit on their bytes (431) and on the time from their first byte (408); so has what
    stands beside the bytes of a body in chunks: extensions and trailers. A connection without a request, or whose
    client reads nothing of an answer, ends after some time. An offer of another protocol is not taken.
    """

    settings = Settings()
    """Those of the server; a subclass has its own."""
    room = Connections(CONNECTIONS)
    """All connections of the server; a subclass has its own."""

    def __init__(self, *args: Any, **options: Any):
        super().__init__(*args, **options)
        self.timeout_keep_alive = self.settings.idle_seconds    # type: ignore[assignment]
        self._in_headers = False        # whether the headers of a request have begun, and are not whole
        self._offers = False        # whether they offer another protocol, such as HTTP/2
        self._ends = False      # whether nothing more is read, because the connection ends
        self._read = self._skipped = self._unsent = self._body_left = 0
        """Bytes: read since a request or part of a body ended, skipped behind an answer, unsent at the last look, and
        of a body that are still to come, where the headers say how many it has."""
        self._unread = memoryview(b"")      # what has come and is not parsed, because an answer is due before
        self._late: asyncio.TimerHandle | None = None       # ends a connection whose headers take too long
        self._gone: Callable[[], object] | None = None      # what `watch` got
        self._is_lost = False

    def connection_made(self, transport: asyncio.Transport) -> None:    # type: ignore[override]
        """Begin to wait for a request."""
        self._joined = Joined(transport, self.loop, self._wait)     # a client has to read what closes the connection
        super().connection_made(self._joined)       # type: ignore[arg-type]
        if self.room.add(self):
            self._wait()
        else:
            self._answer("full", "the server has no room for another connection; try again later")
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Give the place of the connection back, end what waits for it, and tell who watches it."""
        super().connection_lost(exc)
        self.room.remove(self)
        self._unset_keepalive_if_required()     # uvicorn does not after an error, and its timer would hold this object
        self._set_late(None)
        self._is_lost = True
        if self._gone is not None:
            self._gone()

    def watch(self, gone: Callable[[], object] | None) -> None:
        """Call a function when the client ends the connection, or at once if it has; None for none any more.

        `receive` says it, too, in a task that has to wait for it, which takes a tenth of the time of a short request.
        """
        self._gone = gone
        if gone is not None:
            self.flow.resume_reading()      # a large body has paused it, and the end could not be read
            if self._is_lost:
                gone()

    def write_chunk(self, data: bytes) -> bool:
        """Write a part of an answer in chunks, whose headers were sent; return False where its client must read before.

        `send` of ASGI is for tasks, and each part that it sends is a call of the event loop for itself.
        """
        if self.flow.write_paused:
            return False
        self._joined.write_now(b"%x\r\n%b\r\n" % (len(data), data))
        return True

    def data_received(self, data: bytes) -> None:
        """Read a part of a request. A part of a body sets `_read` to 0, which counts headers, extensions, trailers."""
        if self._ends:
            return
        self._unset_keepalive_if_required()
        self._unread = memoryview(b"".join((self._unread, data))) if self._unread else memoryview(data)
        self._go_on()

    def _go_on(self) -> None:
        """Parse what has come, in pieces, until a request waits for the answer to one before it.

        What is left stays as it is, and no more is read: each of the requests in it would take far more memory.
        """
        while self._unread and not self._ends and not self.pipeline:
            size = max(_PIECE, self._body_left)
            piece, self._unread = self._unread[:size], self._unread[size:]
            self._parse(bytes(piece))
        if self._ends:
            self._unread = memoryview(b"")
            return
        if self._unread:
            self._joined.hold_reading()
        if not self._in_headers or self._unread:
            self._set_late(None)
            if self.cycle is None or self.cycle.response_complete:
                self._wait()
        elif self._late is None:
            self._set_late(self.settings.header_seconds)

    def _parse(self, data: bytes) -> None:
        self._read += len(data)
        try:
            self._feed(data)
            check_size("the header", self._read, MAX_HEADER, "send less")
        except Limit as error:
            self._refuse("header", str(error))
        except httptools.HttpParserError as error:
            if isinstance(error.__context__, Refusal):      # the parser wraps what our methods raise
                self._refuse(error.__context__.reason, str(error.__context__))
            elif not isinstance(error.__context__, Limit):
                self._refuse("wrong", "this is no HTTP request that can be read")
            elif self._in_headers:
                self._refuse("header", str(error.__context__))
            else:       # too many bytes of a body behind its answer (`_skip`): there is nothing more to say
                self._ends = True
                self.transport.abort()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_headers = True
        extensions: dict[str, Any] = {ABORT: self.transport.abort, WATCH: self.watch, WRITE: self.write_chunk}
        self.scope["extensions"] = extensions

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; one behind the body, which nobody reads, is left out."""
        if self._in_headers:
            if len(self.headers) >= MAX_HEADERS:
                raise Limit(f"the header has more than {MAX_HEADERS} fields; send fewer")
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Check the headers, and start the application, unless `_feed` reads the request again."""
        self._check_headers()
        self._check_chunks()
        self._offers = self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT"
        if not self._offers:
            self._in_headers, self._read = False, 0
            stated = next((value for name, value in self.headers if name == b"content-length"), b"")
            self._body_left = int(stated) if stated.isdigit() else 0
            self.room.set_idle(self, False)
            super().on_headers_complete()

    def on_message_complete(self) -> None:
        if not self._offers:
            self._read = self._body_left = 0
            super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self.room.set_idle(self, self.cycle.response_complete)
        if self._unread and not self.pipeline and not self.transport.is_closing():
            self._joined.let_reading()
            self._go_on()
            if not self._unread and not self._ends and not self.flow.read_paused:
                self._joined.resume_reading()       # `flow` has resumed it already while it was held

    def on_body(self, body: bytes) -> None:
        """Take a part of a body, or throw it away where the answer was given before it was whole."""
        self._read, self._body_left = 0, max(0, self._body_left - len(body))
        super().on_body(body)
        if self.cycle.response_complete:
            self._skip(len(body))

    def timeout_keep_alive_handler(self) -> None:
        """End a connection without a request; one whose client reads an answer slowly goes on."""
        unsent = self.transport.get_write_buffer_size()
        if unsent and unsent != self._unsent:
            self._unsent = unsent
            self._wait()
        elif unsent:
            self.transport.abort()
        else:
            self.transport.close()

    def end(self) -> None:
        """End the connection at once, for the room that it takes."""
        self._ends = True
        self.transport.abort()

    def _feed(self, data: bytes) -> None:
        """Let the parser read.

        The parser reads no body behind headers that offer another protocol, as Java's client offers HTTP/2 in each
        request. So such a request is read again without the offer.
        """
        while data:
            try:
                self.parser.feed_data(data)
                return
            except httptools.HttpParserUpgrade as error:
                if not self._offers:        # CONNECT, which asks for a tunnel
                    raise httptools.HttpParserError("CONNECT") from None
                head = [b"%b %b HTTP/%b\r\n" % (self.parser.get_method(), self.url,
                                               self.parser.get_http_version().encode())]
                for name, value in self.headers:        # all but upgrade, which connection must not name either
                    kept = value
                    if name == b"connection":
                        tokens = map(bytes.strip, value.split(b","))
                        kept = b", ".join(one for one in tokens if one.lower() != b"upgrade")
                    if name != b"upgrade":
                        head.append(b"%b: %b\r\n" % (name, kept))
                self.parser, self._offers = httptools.HttpRequestParser(self), False
                self.parser.set_dangerous_leniencies(lenient_data_after_close=True)     # as uvicorn's own parser
                data = b"%b\r\n%b" % (b"".join(head), data[error.args[0]:])

    def _check_headers(self) -> None:
        """Raise `Limit` for a request line and headers that are too long."""
        size = len(self.url) + sum(len(name) + len(value) + len(": \r\n") for name, value in self.headers)
        check_size("the header", size, MAX_HEADER, "send less")

    def _check_chunks(self) -> None:
        """Raise `Refusal` for a body in chunks in a request of HTTP/1.0, which has none."""
        version = self.parser.get_http_version()
        # A proxy in front may not know chunks there, and take the body for the next request.
        if version != "1.1" and any(name == b"transfer-encoding" for name, _ in self.headers):
            raise Refusal("wrong", f"a body in chunks needs HTTP/1.1, and this request is HTTP/{version}; send "
                          "content-length")

    def _skip(self, size: int) -> None:
        """Count bytes of a body that are thrown away; raises `Limit`."""
        self._skipped += size
        check_size("a body behind its answer", self._skipped, MAX_SKIPPED, "read the answer")

    def _wait(self) -> None:
        """Wait for a request, for a limited time."""
        self._unset_keepalive_if_required()
        self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)

    def _set_late(self, seconds: float | None) -> None:
        """Set or end the timer of the headers."""
        if self._late is not None:
            self._late.cancel()
        self._late = None if seconds is None else self.loop.call_later(seconds, self._refuse, "slow", (
            f"the headers were not whole within {seconds:g} s"))

    def _refuse(self, reason: str, message: str) -> None:
        """Answer a request that no application sees, and end the connection; an answer that is due comes first."""
        self._ends = True
        self._set_late(None)
        logs.write("request", status=STATUSES[reason], reason=reason)
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete:
            if not cycle.more_body:     # the application has the request, and its answer ends the connection
                cycle.keep_alive = False
                self._joined.hold_reading()
                return
            cycle.disconnected = True       # the rest of its body cannot be read
            cycle.message_event.set()
        self._answer(reason, message)
        # What the client still sends is read for a second: a closed connection would reset it before it reads this.
        self.transport.write_eof()
        self.loop.call_later(1.0, self.transport.close)

    def _answer(self, reason: str, message: str) -> None:
        """Write an answer that no application gives."""
        body = orjson.dumps({"error": {"message": message, "type": "invalid_request_error", "param": None,
                                       "code": None}})
        self.transport.write(STATUS_LINE[STATUSES[reason]] + b"content-type: application/json\r\ncontent-length: %d\r\n"
                             b"connection: close\r\n\r\n%b" % (len(body), body))
