"""`Protocol`: uvicorn's HTTP protocol, with limits on headers, bytes and times, and with errors as JSON.

An ASGI application sees a request only when its headers are whole, so the application itself cannot limit them. All
methods run on the event loop.
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
_LONG_PART = 2**15
"""A part of an answer with more bytes is written at once, and not gathered with others."""
_PIECE = 2**11
"""The most bytes outside a body that are parsed at a time: they hold up to a hundred requests, of 2 KB memory each."""


class Joined:
    """A transport that gathers the header and the body of an answer, and writes them with one system call."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop, closing: Callable[[], None]):
        """closing: called once `close` has been called, while the transport still writes its last bytes."""
        self._transport, self._loop, self._closing = transport, loop, closing
        self._parts: list[bytes] = []
        self._may_read = True       # False between `hold_reading` and `let_reading`

    def write(self, data: bytes) -> None:
        """Gather data, to write it once the present turn of the event loop has ended; write a long part at once.

        A long part fills the buffer, and the task that writes it has to see that, so that it waits.
        """
        if not self._parts:
            self._loop.call_soon(self._flush)
        self._parts.append(data)
        if len(data) > _LONG_PART:
            self._flush()

    def write_now(self, data: bytes) -> None:
        """Write the gathered data, and then this, at once."""
        self._parts.append(data)
        self._flush()

    def close(self) -> None:
        """Write the gathered data, and let the connection close once the client has read it."""
        self._flush()
        if not self._transport.is_closing():
            self._transport.close()
            self._closing()

    def hold_reading(self) -> None:
        """Read nothing more until `let_reading`, even where uvicorn itself calls `resume_reading`."""
        self._may_read = False
        self._transport.pause_reading()

    def let_reading(self) -> None:
        """End `hold_reading`; the next call of `resume_reading` reads on."""
        self._may_read = True

    def resume_reading(self) -> None:
        """Read on, unless reading is held."""
        if self._may_read:
            self._transport.resume_reading()

    def write_eof(self) -> None:
        self._flush()
        self._transport.write_eof()

    def _flush(self) -> None:
        """Write the gathered data with one system call."""
        if self._parts:
            data, self._parts = b"".join(self._parts), []
            self._transport.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class Protocol(HttpToolsProtocol):
    """One connection of a client, which sends requests one after the other.

    The headers of a request have a limit on their bytes (431) and on the time from their first byte (408); the same
    limit on bytes holds for the extensions and trailers of a body in chunks. A connection without a request, or whose
    client reads nothing of an answer, ends after `idle_seconds`. An offer of another protocol is ignored.
    """

    settings = Settings()
    """The settings of the server; each server makes a subclass with its own."""
    room = Connections(CONNECTIONS)
    """Counts all connections of the server; each server makes a subclass with its own."""

    def __init__(self, *args: Any, **options: Any):
        super().__init__(*args, **options)
        self.timeout_keep_alive = self.settings.idle_seconds    # type: ignore[assignment]
        self._in_headers = False        # whether the headers of a request have begun and are not whole
        self._has_offer = False     # whether the headers offer to change to another protocol, such as HTTP/2
        self._is_ending = False     # whether nothing more is read, because the connection ends
        # Numbers of bytes.
        self._read = 0          # parsed since the last request, headers or part of a body ended
        self._skipped = 0       # of bodies, thrown away because they came after their answer
        self._unsent = 0        # that the client had not read when `timeout_keep_alive_handler` last looked
        self._body_left = 0     # of the present body that are still to come, where the headers state its length
        self._unread = memoryview(b"")      # bytes that have come, and are parsed once an earlier answer is complete
        self._header_timer: asyncio.TimerHandle | None = None       # ends a connection whose headers take too long
        self._on_lost: Callable[[], object] | None = None       # the argument of `watch`
        self._is_lost = False

    def connection_made(self, transport: asyncio.Transport) -> None:    # type: ignore[override]
        """Wait for the first request, or refuse the connection if the server has too many."""
        # `_wait` limits the time in which the client has to read the last bytes of a connection that closes.
        self._joined = Joined(transport, self.loop, self._wait)
        super().connection_made(self._joined)       # type: ignore[arg-type]
        if self.room.add(self):
            self._wait()
        else:
            self._answer("full", "the server has no room for another connection; try again later")
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Give the place of the connection back, end its timers, and call the function that `watch` got."""
        super().connection_lost(exc)
        self.room.remove(self)
        self._unset_keepalive_if_required()     # after an error uvicorn leaves its timer, which would hold this object
        self._set_header_timer(seconds=None)
        self._is_lost = True
        if self._on_lost is not None:
            self._on_lost()

    def watch(self, on_lost: Callable[[], object] | None) -> None:
        """Call a function when the client ends the connection, or at once if it has; None ends the watch.

        ASGI's `receive` tells it, too, but needs a task that waits for it: a tenth of the time of a short request.
        """
        self._on_lost = on_lost
        if on_lost is not None:
            self.flow.resume_reading()      # a large body may have paused reading, and then the end goes unseen
            if self._is_lost:
                on_lost()

    def write_chunk(self, data: bytes) -> bool:
        """Write a part of an answer in chunks, whose headers were sent; return False, unwritten, if the buffer is full.

        ASGI's `send` needs a task, and takes a turn of the event loop for each part.
        """
        if self.flow.write_paused:
            return False
        self._joined.write_now(b"%x\r\n%b\r\n" % (len(data), data))
        return True

    def data_received(self, data: bytes) -> None:
        """Parse the bytes that have come, as far as they may be parsed now; asyncio calls it."""
        if self._is_ending:
            return
        self._unset_keepalive_if_required()
        self._unread = memoryview(b"".join((self._unread, data))) if self._unread else memoryview(data)
        self._parse_unread()

    def _parse_unread(self) -> None:
        """Parse the unread bytes in pieces, until a whole request has to wait for the answer to an earlier one.

        Later bytes stay unparsed, and reading stops: as parsed requests they would take far more memory.
        """
        while self._unread and not self._is_ending and not self.pipeline:
            size = max(_PIECE, self._body_left)     # a body holds no requests, so it needs no limit
            piece, self._unread = self._unread[:size], self._unread[size:]
            self._parse(bytes(piece))
        if self._is_ending:
            self._unread = memoryview(b"")
            return
        if self._unread:
            self._joined.hold_reading()
        if not self._in_headers or self._unread:        # no client is late with its headers
            self._set_header_timer(seconds=None)
            if self.cycle is None or self.cycle.response_complete:
                self._wait()
        elif self._header_timer is None:
            self._set_header_timer(self.settings.header_seconds)

    def _parse(self, data: bytes) -> None:
        """Parse one piece; refuse a request with wrong bytes, or with too many outside its body."""
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
                self._is_ending = True
                self.transport.abort()

    # The parser calls the methods on_... below while `_feed` gives it data.

    def on_message_begin(self) -> None:
        """Begin a request, and give the application our extensions in its scope."""
        super().on_message_begin()
        self._in_headers = True
        extensions: dict[str, Any] = {ABORT: self.transport.abort, WATCH: self.watch, WRITE: self.write_chunk}
        self.scope["extensions"] = extensions

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header to the request; ignore a trailer, which stands behind the body. Raises `Limit` for too many."""
        if self._in_headers:
            if len(self.headers) >= MAX_HEADERS:
                raise Limit(f"the header has more than {MAX_HEADERS} fields; send fewer")
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Check the headers, and start the application; with an offer, `_feed` parses them again instead."""
        self._check_headers()
        self._check_chunks()
        self._has_offer = self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT"
        if not self._has_offer:
            self._in_headers, self._read = False, 0
            stated = next((value for name, value in self.headers if name == b"content-length"), b"")
            self._body_left = int(stated) if stated.isdigit() else 0
            self.room.set_idle(self, idle=False)
            super().on_headers_complete()

    def on_message_complete(self) -> None:
        """End the body of a request."""
        if not self._has_offer:
            self._read = self._body_left = 0
            super().on_message_complete()

    def on_response_complete(self) -> None:
        """Go on with the next request, whose bytes may have come already. uvicorn calls it after an answer."""
        super().on_response_complete()
        self.room.set_idle(self, self.cycle.response_complete)
        if self._unread and not self.pipeline and not self.transport.is_closing():
            self._joined.let_reading()
            self._parse_unread()
            if not self._unread and not self._is_ending and not self.flow.read_paused:
                self._joined.resume_reading()       # uvicorn called it before, while reading was held

    def on_body(self, body: bytes) -> None:
        """Give a part of a body to the application, or count it as skipped if the request has its answer already."""
        self._read, self._body_left = 0, max(0, self._body_left - len(body))
        super().on_body(body)
        if self.cycle.response_complete:
            self._skip(len(body))

    def timeout_keep_alive_handler(self) -> None:
        """End an idle connection; one whose client has read a part of an answer since the last look may go on."""
        unsent = self.transport.get_write_buffer_size()
        if unsent and unsent != self._unsent:
            self._unsent = unsent
            self._wait()
        elif unsent:
            self.transport.abort()
        else:
            self.transport.close()

    def end(self) -> None:
        """End the connection at once; `Connections` calls it when a new one needs the place of an idle one."""
        self._is_ending = True
        self.transport.abort()

    def _feed(self, data: bytes) -> None:
        """Give data to the parser; parse a request that offers another protocol a second time without the offer.

        The parser reads no body behind such headers, and Java's client offers HTTP/2 in each request.
        """
        while data:
            try:
                self.parser.feed_data(data)
                return
            except httptools.HttpParserUpgrade as error:
                if not self._has_offer:        # CONNECT, which asks for a tunnel
                    raise httptools.HttpParserError("CONNECT") from None
                head = [b"%b %b HTTP/%b\r\n" % (self.parser.get_method(), self.url,
                                               self.parser.get_http_version().encode())]
                for name, value in self.headers:        # without "upgrade" and its name in "connection"
                    if name == b"connection":
                        tokens = map(bytes.strip, value.split(b","))
                        value = b", ".join(token for token in tokens if token.lower() != b"upgrade")
                    if name != b"upgrade":
                        head.append(b"%b: %b\r\n" % (name, value))
                self.parser, self._has_offer = httptools.HttpRequestParser(self), False
                self.parser.set_dangerous_leniencies(lenient_data_after_close=True)     # as uvicorn's own parser
                data = b"%b\r\n%b" % (b"".join(head), data[error.args[0]:])     # and what stands behind the headers

    def _check_headers(self) -> None:
        """Raise `Limit` for a request line and headers that are too long."""
        size = len(self.url) + sum(len(name) + len(value) + len(": \r\n") for name, value in self.headers)
        check_size("the header", size, MAX_HEADER, "send less")

    def _check_chunks(self) -> None:
        """Raise `Refusal` for a body in chunks in a request of HTTP/1.0, which does not know chunks."""
        version = self.parser.get_http_version()
        # A proxy in front of the server may ignore the chunks, and read the body as the next request.
        if version != "1.1" and any(name == b"transfer-encoding" for name, _ in self.headers):
            raise Refusal("wrong", f"a body in chunks needs HTTP/1.1, and this request is HTTP/{version}; send "
                          "content-length")

    def _skip(self, size: int) -> None:
        """Count bytes of a body that are thrown away; raises `Limit`."""
        self._skipped += size
        check_size("a body behind its answer", self._skipped, MAX_SKIPPED, "read the answer")

    def _wait(self) -> None:
        """Start the timer anew that ends the connection if it stays idle for `idle_seconds`."""
        self._unset_keepalive_if_required()
        self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)

    def _set_header_timer(self, seconds: float | None) -> None:
        """Start the timer for the headers of a request; None ends it."""
        if self._header_timer is not None:
            self._header_timer.cancel()
        self._header_timer = None if seconds is None else self.loop.call_later(seconds, self._refuse, "slow", (
            f"the headers were not whole within {seconds:g} s"))

    def _refuse(self, reason: str, message: str) -> None:
        """Answer a request that never reaches the application, and end the connection, after an answer that is due."""
        self._is_ending = True
        self._set_header_timer(seconds=None)
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
        """Write an error of the protocol itself as a whole answer, in OpenAI's form."""
        body = orjson.dumps({"error": {"message": message, "type": "invalid_request_error", "param": None,
                                       "code": None}})
        self.transport.write(STATUS_LINE[STATUSES[reason]] + b"content-type: application/json\r\ncontent-length: %d\r\n"
                             b"connection: close\r\n\r\n%b" % (len(body), body))
