"""The ASGI application of a server: it reads requests, asks the service, and writes answers and errors."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterator, MutableMapping
from concurrent.futures import Future
from functools import partial
from typing import Any

from ..base.errors import LATE_REQUEST, Closing, InputError, TimedOut
from . import cohere, logs, openai, tei, text_routes, token_routes, transcriptions, zero_shot
from .admission import Room
from .event_loop import Alarm
from .forms import Asked, Route, Wanted, memory_of, read_fields
from .json_steps import json_of, write_json
from .multipart import FormParts, Upload
from .pages import make_pages
from .protocol import ABORT, WATCH, WRITE
from .refusals import OPENAI, Refusal, refusal_of, refused, release
from .requests import LONG_BYTES, Answer, Times
from .served import Named, Receive, Scope, Send, Served, headers_of
from .settings import COMMENT_SECONDS, MAX_FIELDS, check_seconds

ROUTES: tuple[Route, ...] = (*openai.ROUTES, *text_routes.ROUTES, *token_routes.ROUTES, *tei.ROUTES, *cohere.ROUTES,
                            *zero_shot.ROUTES)
_CHUNK = 2**18
"""The most bytes of an answer that are handed to the connection at a time."""
_SHORT_BODY = 2**16
"""The most bytes of a body that is parsed on the event loop, in about a millisecond; a worker parses a longer one."""
_SHORT_VALUES = 2**17
"""The most bytes that the values of such a body take beside their characters: 1,600 texts, or 900 lists of one."""


class Gone(Exception):
    """The client has ended the connection, or its connection was ended because it reads nothing."""


class App:
    """The ASGI application of a server: it gives each request to the endpoint of its route, or to the pages.

    A request to a route goes straight to its `Endpoint`, which makes an answer of every error; Starlette has the pages,
    and the errors of paths and methods. Its layers around a request took a tenth of the event loop's time.
    """

    def __init__(self, served: Served):
        self._endpoints = {route.path: Endpoint(served, route) for route in ROUTES}
        self._endpoints |= {route.path: Endpoint(served, route, UploadExchange) for route in transcriptions.ROUTES}
        self._pages = make_pages(served, self._endpoints)     # GET pages, and the errors of unknown paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request: POST to a route by its endpoint, all others by the pages."""
        endpoint = self._endpoints.get(scope["path"]) if scope["method"] == "POST" else None
        await (endpoint or self._pages)(scope, receive, send)


class Endpoint:
    """Answers the requests to one route, as an ASGI application."""

    def __init__(self, served: Served, route: Route, exchange: type[Exchange] | None = None):
        """exchange: the class of each request and its answer, by default `Exchange`."""
        self._served, self._route, self._exchange = served, route, exchange or Exchange

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request. Whatever goes wrong becomes an answer with the status of its reason."""
        self._served.rest.soon()        # where the models are busy, the event loop sleeps briefly to gather requests
        exchange = self._exchange(self._served, self._route, scope, receive, send)
        with Room(self._served.service.memory) as room:
            await exchange.run(room)


class Exchange:
    """One request and its answer, from the first byte of the body to the last of the answer, in one task."""

    def __init__(self, served: Served, route: Route, scope: Scope, receive: Receive, send: Send):
        self._served, self._route, self._scope, self._receive, self._send = served, route, scope, receive, send
        self._begun = time.monotonic()
        self._headers = headers_of(scope)
        self._id = served.id_of(self._headers)
        self._family = route.kind.family        # whose form errors have
        self._owner, self._tokens, self._new_tokens = "", 0, 0      # for the log, once they are known
        self._streams = False       # whether the headers of a stream were sent
        self._failure: BaseException | None = None      # why there is no answer, or a stream has no end
        self._alarm = Alarm()

    async def run(self, room: Room) -> None:
        """Read the request, compute and answer; write a line into the log. room: counts its memory.

        The log has status 499 if the client has closed the connection (`Gone`), and none if the request was cancelled.
        """
        status: int | None = None
        try:
            try:
                self._served.files.check()      # refuses the request if a file of the model has changed
                headers, parts = await self._answer(room)
                self._served.files.check()      # again: a file of the model may have changed meanwhile
                status = 200
            except (Gone, asyncio.CancelledError):
                raise
            except Exception as error:
                self._failure = error
                refusal = refusal_of(error, self._id)
                self._served.metrics.refuse(refusal.reason)
                status, headers, body = refused(self._family, refusal, self._id)
                parts = [body]
            if not self._streams:
                await self._write(status, headers, parts)
        except Gone:
            status = 499
            self._served.metrics.refuse("gone")
        finally:
            self._alarm.end()
            failure, self._failure = self._failure, None
            # Only an error of the server itself has its kind and places in the log; a refusal is the client's.
            failed = None if failure is None or refusal_of(failure, "").reason != "failed" else failure
            logs.write("request", id=self._id, route=self._route.path, status=status, key=self._owner or None,
                       seconds=round(time.monotonic() - self._begun, 6), tokens=self._tokens or None,
                       new_tokens=self._new_tokens or None, error=None if failed is None else type(failed).__name__,
                       places=None if failed is None else logs.places_of(failed))
            if failure is not None:
                release(failure)        # its traceback would keep the request alive

    async def _answer(self, room: Room) -> tuple[list[tuple[bytes, bytes]], list[bytes]]:
        """Return the headers and the parts of an answer; raises `Refusal` and whatever the computation raises.

        room: counts the memory of the request. The events of a stream are sent here, so it has no parts.
        """
        served = self._served
        self._owner = room.key = served.owner(self._headers)
        if served.closing:
            raise Refusal("closing", "the server stops, and takes no more requests", retry_after=1.0)
        work, model = await self._wanted(room, self._deadline())
        deadline = self._deadline(model)
        served.metrics.begin(work.task, work.single)
        if work.task:
            future = model.service.submit(work.task, work.inputs, work.options, key=self._owner, deadline=deadline,
                                          room=room, streams=work.events is not None)
            try:
                answer = await self._until(future, deadline)
            except BaseException:
                if work.events is not None:     # it may have begun in the moment in which the client left
                    future.add_done_callback(_end_stream)
                raise
        else:       # a route that needs no model: `body` below computes the answer from the inputs
            room.hold(room.size + work.bytes)
            answer = Answer(value=None, tokens=[], truncated=[], times=Times(), bytes=room.size)
        asked = Asked(request=self._id, model=model.names[0])
        if work.events is not None:
            await self._stream(work, answer, asked, deadline)
            parts = []
        elif work.task and answer.bytes <= LONG_BYTES:        # on the event loop, in about a millisecond
            parts = [json_of(work.body(answer, asked))]
        else:
            parts = await self._run_in_worker(lambda: write_json(work.body(answer, asked)), deadline,
                                              long=answer.bytes > LONG_BYTES)
        self._tokens, self._new_tokens = sum(answer.tokens), self._new_tokens or answer.new_tokens
        seconds = time.monotonic() - self._begun
        if self._failure is None:
            served.metrics.answer(work.task, work.single, seconds, answer.times, answer.tokens)
        return _headers_of_answer(answer, work, seconds), parts

    async def _stream(self, work: Wanted, answer: Answer, asked: Asked, deadline: float) -> None:
        """Send the events of an answer as they come, each as soon as it is there.

        An error before the first event is raised, and has a status; one that comes later is the last event.
        """
        served, stream, writer = self._served, answer.value, work.events
        writer.begin(answer, asked)
        try:
            while not stream.ended:
                waiter = asyncio.get_running_loop().create_future()
                flow = partial(self._flow, stream, writer, waiter, deadline)
                stream.news.listen(served.answers, flow)
                flow()
                try:
                    data = await self._watched(waiter, min(deadline, time.monotonic() + COMMENT_SECONDS))
                except TimedOut:
                    if time.monotonic() >= deadline:
                        raise
                    data = text_routes.COMMENT
                if data:
                    await self._send_events(work, data)
            self._served.files.check()      # it was computed while a file changed
            await self._send_events(work, writer.end())
        except Exception as error:
            if not self._streams or isinstance(error, Gone):
                raise
            self._failure, refusal = error, refusal_of(error, self._id)
            self._served.metrics.refuse(refusal.reason)
            await self._send_events(work, text_routes.event(OPENAI.body(refusal, OPENAI.status(refusal), self._id)))
        finally:
            stream.news.end()
            stream.cancel()
            self._new_tokens = stream.new_tokens
        await self._hand_over([{"type": "http.response.body", "body": b"", "more_body": False}])

    def _flow(self, stream: Any, writer: Any, waiter: asyncio.Future[bytes], deadline: float) -> None:
        """Write the events that a stream has now to the connection; the event loop calls it at each new token.

        So most events need no switch to the task of the request, which waits for `waiter`. The result of `waiter` has
        the events that the task must send itself (the first, the last, and those that the connection has no room for),
        or it is an error to raise. Once `waiter` is done, this method writes nothing more.
        """
        if waiter.done():
            return
        try:
            data = b"".join(writer.events(stream.take()))
        except Exception as error:
            waiter.set_exception(error)
            return
        if stream.ended or (data and not (self._streams and self._scope["extensions"][WRITE](data))):
            waiter.set_result(data)
            return
        if data:
            # The client has heard of the stream, so that its next comment is due later.
            self._alarm.postpone(min(deadline, time.monotonic() + COMMENT_SECONDS))

    async def _send_events(self, work: Wanted, data: bytes) -> None:
        """Send events, the first ones behind the headers of the answer."""
        messages: list[MutableMapping[str, Any]] = [{"type": "http.response.body", "body": data, "more_body": True}]
        if not self._streams:
            self._streams = True
            messages.insert(0, {"type": "http.response.start", "status": 200, "headers": [
                (b"content-type", b"text/event-stream"), (b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no"),
                (b"x-request-id", self._id.encode()), *work.headers]})
        await self._hand_over(messages)

    async def _run_in_worker(self, call: Callable[[], Any], deadline: float, *, long: bool) -> Any:
        """Return the result of a call, or of the steps that it returns, which a thread of the workers runs."""
        return await self._until(self._served.service.workers.submit(
            call, key=self._owner, long=long, deadline=deadline), deadline)

    async def _wanted(self, room: Room, deadline: float) -> tuple[Wanted, Named]:
        """Return the work for the body of the request, whose values the room counts, and the model that does it."""
        data = await self._body(room)
        text, values = memory_of(data)
        room.hold(len(data) + text + values)        # parsing holds the body, its text and its values at once
        if len(data) <= _SHORT_BODY and values - text <= _SHORT_VALUES:
            wanted = self._read(data)
        else:
            wanted = await self._run_in_worker(partial(self._read, data), deadline, long=True)
        room.hold(values)
        return wanted

    def _read(self, data: bytes) -> tuple[Wanted, Named]:
        """Return (the work for a body, the model that does it); raises `Refusal`."""
        fields = read_fields(data, self._served.settings.max_body)
        kind = self._route.kind_of(fields)
        self._family = kind.family
        model = self._served.named(fields.get("model"), kind.tasks)
        return kind.wanted(fields, model.service, self._route.path), model

    def _deadline(self, model: Named | None = None) -> float:
        """Return the time, of `time.monotonic`, after which the client does not wait for the answer; raises `Refusal`.

        model: the model that is asked, once it is known, as each has its limit. A header x-request-timeout shortens it.
        """
        seconds = self._served.settings.timeout if model is None else self._served.wait_of(model)
        if (given := self._headers.get(b"x-request-timeout")) is not None:
            try:
                seconds = min(seconds, check_seconds("x-request-timeout", given.decode("latin-1")))
            except InputError as error:
                raise Refusal("wrong", str(error), "x-request-timeout") from None
        return self._begun + seconds

    async def _body(self, room: Room) -> bytes:
        """Return the body, and count its memory; raises `Refusal`, `Overloaded`, and `Gone`."""
        self._check_type()
        size, parts = 0, []

        def add(part: bytes) -> None:
            """Keep a part of the body, and count its memory."""
            nonlocal size
            parts.append(part)
            size += len(part)
            room.hold(size)

        settings = self._served.settings
        await self._read_body(add, settings.max_body, "--max-body-bytes", settings.body_seconds)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def _read_body(self, add: Callable[[bytes], object], limit: int, option: str, seconds: float) -> None:
        """Read the body in parts; raises `Refusal` for a large or slow one, and `Gone`.

        add: gets each part. limit: bytes. option: the server's option for that limit. seconds: for the whole body.
        """
        too_large = Refusal("too_large", f"the body has more than {limit:,} bytes; send less in one request, or start "
                            f"the server with a larger {option}")
        stated = self._headers.get(b"content-length", b"")
        if stated.isdigit() and int(stated[:20]) > limit:       # 20 digits are enough to be above each limit
            raise too_large
        size, more = 0, True
        self._cancel_after(seconds)
        try:
            while more:
                message = await self._receive()
                if message["type"] == "http.disconnect":
                    raise Gone
                part = message.get("body", b"")
                size, more = size + len(part), message.get("more_body", False)
                if size > limit:
                    raise too_large
                add(part)
        except asyncio.CancelledError:
            if self._alarm.rang:
                raise Refusal("slow", f"the body was not whole within {seconds:g} s") from None
            raise
        finally:
            self._alarm.unset()

    def _check_type(self) -> None:
        """Raise `Refusal` if the headers do not declare the body as JSON in UTF-8.

        A page in a browser may send forms and plain text to a server on the same machine without asking it first.
        """
        given = self._headers.get(b"content-type", b"").lower()
        kind, _, rest = given.partition(b";")
        if kind.strip() not in (b"application/json", b"") and not kind.strip().endswith(b"+json"):
            raise Refusal("type", "the body must be JSON; send the header content-type: application/json")
        if (charset := re.search(rb"charset=\"?([\w-]+)", rest)) and charset[1] not in (b"utf-8", b"utf8", b"us-ascii"):
            raise Refusal("wrong", f"the body must be in UTF-8, not in {charset[1].decode()}")
        self._check_encoding()

    def _check_encoding(self) -> None:
        """Raise `Refusal` for a compressed body."""
        if self._headers.get(b"content-encoding", b"identity").lower() != b"identity":
            raise Refusal("type", "the body must not be compressed; leave the header content-encoding out")

    async def _until(self, future: Future[Any], deadline: float) -> Any:
        """Return the result of a future of a thread; cancel it at the deadline, or when the client has gone."""
        if future.done():       # the request was refused as it was submitted
            return future.result()
        try:
            return await self._watched(self._served.answers.wait(future), deadline)
        finally:
            future.cancel()

    async def _watched(self, waiter: asyncio.Future[Any], deadline: float) -> Any:
        """Return the result of a future of the event loop.

        Raises `TimedOut` at the deadline, `Gone` if the client leaves before, and `Closing` if the server is stopped.
        """
        gone = False

        def leave() -> None:
            """End the wait because the client has gone; the protocol calls it."""
            nonlocal gone
            gone = True
            waiter.cancel()

        watch = self._scope["extensions"][WATCH]
        watch(leave)
        self._alarm.set(deadline, waiter.cancel)
        try:
            return await waiter
        except asyncio.CancelledError:
            if gone:
                raise Gone from None
            if self._alarm.rang:
                raise TimedOut(LATE_REQUEST) from None
            if self._served.closing:        # the second SIGINT, which cancels all that still runs
                raise Closing from None
            raise
        finally:
            self._alarm.unset()
            watch(None)     # ends the watch

    async def _write(self, status: int, headers: list[tuple[bytes, bytes]], parts: list[bytes]) -> None:
        """Send an answer in chunks. parts: the body, a list that is emptied, so that sent parts free their memory."""
        size = sum(map(len, parts))
        messages: list[MutableMapping[str, Any]] = [{"type": "http.response.start", "status": status, "headers": [
            (b"content-length", b"%d" % size), (b"x-request-id", self._id.encode()), *headers]}]
        for body in chunks(parts, _CHUNK):
            size -= len(body)
            messages.append({"type": "http.response.body", "body": body, "more_body": size > 0})
            await self._hand_over(messages)
            messages = []

    async def _hand_over(self, messages: list[MutableMapping[str, Any]]) -> None:
        """Send messages of ASGI; if the client reads nothing for `idle_seconds`, end its connection and raise `Gone`.

        A short message waits, too, where the client has not read the answer to the request before.
        """
        self._cancel_after(self._served.settings.idle_seconds)
        try:
            for message in messages:
                await self._send(message)
        except asyncio.CancelledError:
            if not self._alarm.rang:        # something else cancelled the task
                raise
            self._scope["extensions"][ABORT]()      # ends the connection
            raise Gone from None
        finally:
            self._alarm.unset()

    def _cancel_after(self, seconds: float) -> None:
        """Cancel the current task in `seconds`, unless the alarm is unset before; `_alarm.rang` tells."""
        task = asyncio.current_task()
        assert task is not None     # of a coroutine
        self._alarm.set(time.monotonic() + seconds, task.cancel)


class UploadExchange(Exchange):
    """One request whose body is a form with a file, which goes to disk, and its answer."""

    _upload: Upload | None = None

    async def run(self, room: Room) -> None:
        """Read the request, compute and answer. room: counts its memory."""
        try:
            await super().run(room)
        finally:
            if self._upload is not None:
                self._upload.close()

    async def _wanted(self, room: Room, deadline: float) -> tuple[Wanted, Named]:
        """Return the work for the body of the request, and the model that does it."""
        served, kind = self._served, self._route.kind
        self._check_encoding()
        self._check_origin()
        upload = self._upload = Upload(served.disk, self._owner)
        parts = FormParts(self._headers.get(b"content-type", b""), transcriptions.FILE, upload)
        room.hold(4 * MAX_FIELDS)       # the other fields as text: a character takes up to 4 bytes
        settings = served.settings
        await self._read_body(parts.feed, settings.max_recording, "--max-recording-bytes", settings.timeout)
        parts.end()
        model = served.named(next(iter(parts.fields.get("model", ())), None), kind.tasks)
        return kind.wanted(parts.fields | {transcriptions.FILE: upload}, model.service, self._route.path), model

    def _check_origin(self) -> None:
        """Raise `Refusal` for a form that a page of another site sends, which browsers do without asking."""
        origin = self._headers.get(b"origin", b"")
        if origin and origin.partition(b"://")[2] != self._headers.get(b"host"):
            raise Refusal("wrong", "a page of another site may not send forms to this server", "origin")


def _end_stream(future: Future[Any]) -> None:
    """Cancel the stream that is the result of a future; do nothing if it was cancelled or has an error."""
    if not future.cancelled() and future.exception() is None:
        future.result().value.cancel()


def chunks(parts: list[bytes], size: int) -> Iterator[bytes]:
    """Yield `parts` joined or cut to chunks of about `size` bytes, at least one chunk, and empty the list meanwhile."""
    parts.reverse()     # pop() then takes the first part, and drops the list's reference to it
    while True:
        taken = [parts.pop()]
        while parts and sum(map(len, taken)) < size:
            taken.append(parts.pop())
        joined = taken[0] if len(taken) == 1 else b"".join(taken)
        for start in range(0, max(1, len(joined)), size):
            yield joined[start : start + size]
        if not parts:
            return


def _headers_of_answer(answer: Answer, work: Wanted, seconds: float) -> list[tuple[bytes, bytes]]:
    """Return the headers of an answer: TEI's, of its size and its times in milliseconds, and how many texts were cut.

    seconds: from the request to now.
    """
    times = answer.times
    headers = [(b"content-type", work.content_type.encode()), *work.headers, (b"x-compute-type", b"cpu"),
               (b"x-compute-characters", b"%d" % work.characters), (b"x-compute-tokens", b"%d" % sum(answer.tokens)),
               *((name, b"%d" % round(1000 * value)) for name, value in (
                   (b"x-total-time", seconds), (b"x-tokenization-time", times.tokenize), (b"x-queue-time", times.queue),
                   (b"x-inference-time", times.compute), (b"x-compute-time", times.tokenize + times.compute)))]
    if cut := sum(answer.truncated):
        headers.append((b"x-engine-truncated", b"%d" % cut))
    return headers
