"""The ASGI application of a server: it reads requests, asks the service, and writes answers and errors."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import re
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, MutableMapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any

import orjson
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as Path

from ..base.errors import LATE_REQUEST, Closing, InputError, TimedOut, listed, shown
from ..base.lazy import lazy
from ..base.version import __version__
from ..interface.reranker import Reranker
from . import cohere, logs, openai, tei
from .admission import Room
from .forms import Asked, Kind, Route, Wanted, memory_of, options_of, read_fields, read_form
from .json_steps import json_of, write_json
from .keys import ApiKeys
from .mapped import MappedFiles
from .metrics import CONTENT_TYPE, Metrics
from .protocol import ABORT, WATCH
from .refusals import OPENAI, TEI, ErrorForm, Refusal, refusal_of
from .service import LONG_BYTES, Answer, Service, Times
from .settings import Settings, check_seconds

ROUTES: tuple[Route, ...] = (*openai.ROUTES, *tei.ROUTES, *cohere.ROUTES)
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

NO_KEY = "this server needs a key that it knows, in the header authorization: Bearer KEY"
_ID = re.compile(rb"[\w.:-]{1,64}")
"""The ids of requests, in the header x-request-id, that are taken over; other ones are replaced."""
_CHUNK = 2**18
"""Bytes of an answer that are handed to the connection at a time."""
_SHORT_BODY = 2**16
"""The most bytes of a body that is read on the event loop, in about a millisecond."""
_SHORT_VALUES = 2**17
"""The most bytes that its values take beside their characters: 1,600 texts or numbers, or 900 lists of one."""
REST, SHORTEST_REST, LONGEST_REST = 1 / 16, 0.005, 0.05
"""How long the event loop leaves the cores to the model: a share of the time of waiting work, up to 50 ms, or not at
all for 5 ms or less."""
_JSON = (b"content-type", b"application/json")


class Gone(Exception):
    """The client has ended the connection."""


class Replies:
    """Brings results of other threads to the event loop, which is woken once for all results that are there."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._done: deque[tuple[asyncio.Future[Any], Future[Any]]] = deque()
        self._woken = False

    def wait(self, future: Future[Any]) -> asyncio.Future[Any]:
        """Return a future of the event loop that gets the result of a future of another thread."""
        waiter = self._loop.create_future()
        future.add_done_callback(lambda future: self._add(waiter, future))
        return waiter

    def _add(self, waiter: asyncio.Future[Any], future: Future[Any]) -> None:
        """Take a result, in any thread."""
        self._done.append((waiter, future))
        if not self._woken:
            self._woken = True
            with contextlib.suppress(RuntimeError):     # the loop has ended, and nobody waits
                self._loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        self._woken = False     # first: what comes from now on wakes the loop again
        while self._done:
            waiter, future = self._done.popleft()
            if waiter.done():
                continue
            if future.cancelled():
                waiter.cancel()
            elif (error := future.exception()) is not None:
                waiter.set_exception(error)
            else:
                waiter.set_result(future.result())


class Rest:
    """Lets requests that arrive within a moment be read together, while the model has work for much longer.

    Each time the event loop wakes, it takes a core from the model for a moment, and Python's lock from all threads.
    """

    def __init__(self, service: Service):
        self._service, self._due = service, False

    def soon(self) -> None:
        """Rest when the requests that are here now have gone on."""
        if not self._due:
            self._due = True
            asyncio.get_running_loop().call_soon(self._rest)

    def _rest(self) -> None:
        self._due = False
        seconds = min(LONGEST_REST, self._service.backlog * REST)
        if seconds > SHORTEST_REST:
            time.sleep(seconds)     # the whole loop rests, and that is its purpose


@dataclass(eq=False)
class Served:
    """A service and what all routes share."""

    service: Service
    settings: Settings
    keys: ApiKeys
    metrics: Metrics
    files: MappedFiles = field(default_factory=MappedFiles)
    """The files that the model reads while it computes."""
    closing: bool = False
    """Whether new requests are refused, because the server stops."""

    @lazy
    def answers(self) -> Replies:
        """The results for the event loop of the server, which runs at the first use."""
        return Replies()

    def __post_init__(self) -> None:
        self.rest = Rest(self.service)
        self.created = int(time.time())
        self._prefix, self._numbers = os.urandom(6).hex(), count(1)
        self._page: bytes | None = None     # the text of /metrics of this turn of the event loop

    def id_of(self, headers: Mapping[bytes, bytes]) -> str:
        """Return the id of a request: that of its own header, or a new one."""
        given = headers.get(b"x-request-id", b"")
        return given.decode() if _ID.fullmatch(given) else f"{self._prefix}-{next(self._numbers):x}"

    def numbers(self) -> bytes:
        """Return the text of /metrics, made once for all who ask in one turn of the event loop: it takes milliseconds,
        and everybody may ask.
        """
        if self._page is None:
            self._page = self.metrics.text()
            asyncio.get_running_loop().call_soon(self._forget_page)
        return self._page

    def _forget_page(self) -> None:
        self._page = None

    def close(self) -> None:
        """End the service and its threads, after all answers."""
        self.service.close()
        self.files.close()

    @property
    def longest(self) -> int | None:
        """The most tokens of a text, special tokens included; a longer one is cut or refused."""
        model = self.service.model
        return model.max_length if isinstance(model, Reranker) else model.max_seq_length

    @property
    def serves(self) -> str:
        """What the model serves, for messages."""
        return f"this model serves {', '.join(sorted(self.service.tasks))}"


class App:
    """The ASGI application of a service.

    A request to a route goes straight to its `Endpoint`, which makes an answer of every error; Starlette has the pages,
    and the errors of paths and methods. Its layers around a request took a tenth of the event loop's time.
    """

    def __init__(self, served: Served):
        self._endpoints = {route.path: Endpoint(served, route) for route in ROUTES}
        self._others = _make_pages(served, self._endpoints)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        endpoint = self._endpoints.get(scope["path"]) if scope["method"] == "POST" else None
        await (endpoint or self._others)(scope, receive, send)


def _make_pages(served: Served, endpoints: Mapping[str, Endpoint]) -> Starlette:
    """Return the application of the pages, which knows the paths of all endpoints."""
    paths = [Path(path, endpoint, methods=["POST"]) for path, endpoint in endpoints.items()]
    for path, answer in (("/health", _health), ("/ping", _health), ("/", _health), ("/metrics", _metrics),
                         ("/info", _info), ("/v1/models", _models), ("/models", _models),
                         ("/v1/models/{name:path}", _model)):
        paths.append(Path(path, Page(served, answer, is_open=answer in (_health, _metrics)), methods=["GET"]))
    refuse: Any = partial(_refuse_path, served)
    app = Starlette(routes=paths, exception_handlers={HTTPException: refuse})
    app.router.redirect_slashes = False
    return app


class Endpoint:
    """Answers the requests to one route, as an ASGI application."""

    def __init__(self, served: Served, route: Route):
        self._served, self._route = served, route

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request. Whatever goes wrong becomes an answer with the status of its reason."""
        self._served.rest.soon()
        exchange = Exchange(self._served, self._route, scope, receive, send)
        with Room(self._served.service.memory) as room:
            await exchange.run(room)


class Exchange:
    """One request and its answer."""

    def __init__(self, served: Served, route: Route, scope: Scope, receive: Receive, send: Send):
        self._served, self._route, self._scope, self._receive, self._send = served, route, scope, receive, send
        self._begun = time.monotonic()
        self._headers = _headers_of(scope)
        self._id = served.id_of(self._headers)
        self._family = route.kind.family        # whose form errors have
        self._owner, self._tokens = "", 0       # for the log, once they are known
        self._alarm = Alarm()

    async def run(self, room: Room) -> None:
        """Read the request, compute and answer; write a line into the log. room: counts its memory."""
        status: int | None = None
        failure: BaseException | None = None
        try:
            try:
                self._served.files.check()
                headers, parts = await self._answer(room)
                self._served.files.check()      # it was computed while a file changed
                status = 200
            except (Gone, asyncio.CancelledError):
                raise
            except Exception as error:
                failure = error
                status, headers, parts = self._refused(refusal_of(error, self._id))
            await self._write(status, headers, parts)
        except Gone:
            status = 499
            self._served.metrics.refuse("gone")
        finally:
            self._alarm.end()
            failed = failure if status == 500 else None
            logs.write("request", id=self._id, route=self._route.path, status=status, key=self._owner or None,
                       seconds=round(time.monotonic() - self._begun, 6), tokens=self._tokens or None,
                       error=None if failed is None else type(failed).__name__,
                       places=None if failed is None else logs.places_of(failed))

    async def _answer(self, room: Room) -> tuple[list[tuple[bytes, bytes]], list[bytes]]:
        """Return the headers and the parts of an answer; raises `Refusal` and whatever the computation raises."""
        served, service = self._served, self._served.service
        owner = served.keys.owner(self._headers.get(b"authorization", b""))
        if owner is None:
            raise Refusal("key", NO_KEY)
        self._owner = room.key = owner
        if served.closing:
            raise Refusal("closing", "the server stops, and takes no more requests", retry_after=1.0)
        deadline = self._deadline()
        work, options = await self._wanted(room, deadline)
        served.metrics.begin(work.task, work.single)
        if work.task:
            answer = await self._until(service.submit(work.task, work.inputs, options, key=owner, deadline=deadline,
                                                      room=room), deadline)
        else:       # a route that needs no model
            room.hold(room.size + work.bytes)
            answer = Answer(None, tokens=[], truncated=[], times=Times(), bytes=work.bytes)
        asked = Asked(request=self._id, model=served.settings.names[0])
        if work.task and answer.bytes <= LONG_BYTES:        # on the event loop, in about a millisecond
            parts = [json_of(work.body(answer, asked))]
        else:
            parts = await self._worked(lambda: write_json(work.body(answer, asked)), deadline,
                                       long=answer.bytes > LONG_BYTES)
        self._tokens = sum(answer.tokens)
        seconds = time.monotonic() - self._begun
        served.metrics.answer(work.task, work.single, seconds, answer.times, answer.tokens)
        return _headers_of_answer(answer, work, seconds), parts

    async def _worked(self, call: Callable[[], Any], deadline: float, *, long: bool) -> Any:
        """Return what a call, or the steps that it returns, make by the workers."""
        return await self._until(self._served.service.workers.submit(
            call, key=self._owner, long=long, deadline=deadline), deadline)

    async def _wanted(self, room: Room, deadline: float) -> tuple[Wanted, dict[str, Any]]:
        """Return the work for the body of the request, whose values the room counts, and its options."""
        data = await self._body(room)
        text, values = memory_of(data)
        room.hold(len(data) + text + values)
        if len(data) <= _SHORT_BODY and values - text <= _SHORT_VALUES:
            wanted = self._read(data)
        else:
            wanted = await self._worked(partial(self._read, data), deadline, long=True)
        room.hold(values)
        return wanted

    def _read(self, data: bytes) -> tuple[Wanted, dict[str, Any]]:
        """Return the work for a body, and its options; raises `Refusal`."""
        fields = read_fields(data, self._served.settings.max_body)
        kind = self._route.kind_of(fields)
        self._family = kind.family
        return self._understand(kind, fields)

    def _understand(self, kind: Kind, fields: dict[str, Any]) -> tuple[Wanted, dict[str, Any]]:
        """Return the work for the fields of a request, and its options; raises `Refusal`."""
        served, model = self._served, self._served.service.model
        form = read_form(fields, kind.form)
        if form.model is not None and not served.settings.has(form.model):
            raise Refusal("model", f"there is no model {shown(form.model)} here; this server has "
                          f"{listed(served.settings.names)}", "model")
        work = kind.work(form, model)
        if work.task and work.task not in served.service.tasks:
            raise Refusal("unsupported", f"{self._route.path} needs a model for {work.task}, and {served.serves}")
        options = options_of(form, kind.family, model)
        chooses_prompt = len(options) > 1       # options beside truncation, which all requests have
        if chooses_prompt and any(isinstance(one, list) for one in work.inputs):
            raise Refusal("wrong", "token ids are read as they are, without a prompt; leave prompt_name and input_type "
                          "out, or send texts", "prompt_name")
        return work, options | work.options

    def _deadline(self) -> float:
        """Return when nobody waits for the answer any more, of `time.monotonic`; raises `Refusal`."""
        seconds = self._served.settings.timeout
        if (given := self._headers.get(b"x-request-timeout")) is not None:
            try:
                seconds = min(seconds, check_seconds("x-request-timeout", given.decode("latin-1")))
            except InputError as error:
                raise Refusal("wrong", str(error), "x-request-timeout") from None
        return self._begun + seconds

    async def _body(self, room: Room) -> bytes:
        """Return the body; raises `Refusal` for a large or slow one and a wrong type, `Overloaded`, and `Gone`."""
        limit = self._served.settings.max_body
        self._check_type()
        too_large = Refusal("too_large", f"the body has more than {limit:,} bytes; send less in one request, or start "
                            "the server with a larger --max-body-bytes")
        stated = self._headers.get(b"content-length", b"")
        if stated.isdigit() and int(stated[:20]) > limit:       # 20 digits are enough to be above each limit
            raise too_large
        size, parts, more = 0, [], True
        self._cancel_after(self._served.settings.body_seconds)
        try:
            while more:
                message = await self._receive()
                if message["type"] == "http.disconnect":
                    raise Gone
                parts.append(message.get("body", b""))
                size, more = size + len(parts[-1]), message.get("more_body", False)
                if size > limit:
                    raise too_large
                room.hold(size)
        except asyncio.CancelledError:
            if self._alarm.rang:
                raise Refusal("slow", "the body was not whole within "
                              f"{self._served.settings.body_seconds:g} s") from None
            raise
        finally:
            self._alarm.unset()
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _check_type(self) -> None:
        """Raise `Refusal` for a body that is not said to be plain JSON.

        A page in a browser may send every other type to a server on the same machine without asking.
        """
        given = self._headers.get(b"content-type", b"").lower()
        kind, _, rest = given.partition(b";")
        if kind.strip() not in (b"application/json", b"") and not kind.strip().endswith(b"+json"):
            raise Refusal("type", "the body must be JSON; send the header content-type: application/json")
        if (charset := re.search(rb"charset=\"?([\w-]+)", rest)) and charset[1] not in (b"utf-8", b"utf8", b"us-ascii"):
            raise Refusal("wrong", f"the body must be in UTF-8, not in {charset[1].decode()}")
        if self._headers.get(b"content-encoding", b"identity").lower() != b"identity":
            raise Refusal("type", "the body must not be compressed; leave the header content-encoding out")

    async def _until(self, future: Future[Any], deadline: float) -> Any:
        """Return the result of a future, which is cancelled at the deadline and when the client has gone."""
        if future.done():       # refused at once
            return future.result()
        waiter = self._served.answers.wait(future)
        gone = False

        def leave() -> None:
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
            watch(None)
            future.cancel()

    def _refused(self, refusal: Refusal) -> tuple[int, list[tuple[bytes, bytes]], list[bytes]]:
        """Return the status, the headers and the body that say why there is no answer."""
        self._served.metrics.refuse(refusal.reason)
        status, headers, body = refused(self._family, refusal, self._id)
        return status, headers, [body]

    async def _write(self, status: int, headers: list[tuple[bytes, bytes]], parts: list[bytes]) -> None:
        """Send an answer, a part at a time. parts: of the body; each is given up when it is sent."""
        size = sum(map(len, parts))
        messages: list[MutableMapping[str, Any]] = [{"type": "http.response.start", "status": status, "headers": [
            (b"content-length", b"%d" % size), (b"x-request-id", self._id.encode()), *headers]}]
        for body in chunks(parts, _CHUNK):
            size -= len(body)
            messages.append({"type": "http.response.body", "body": body, "more_body": size > 0})
            await self._hand_over(messages)
            messages = []

    async def _hand_over(self, parts: list[MutableMapping[str, Any]]) -> None:
        """Send parts of an answer; raises `Gone` for a client that reads nothing for some time, whose connection ends.

        A short part waits, too, where the client has not read the answer to the request before.
        """
        self._cancel_after(self._served.settings.idle_seconds)
        try:
            for part in parts:
                await self._send(part)
        except asyncio.CancelledError:
            if not self._alarm.rang:
                raise
            self._scope["extensions"][ABORT]()      # ends the connection
            raise Gone from None
        finally:
            self._alarm.unset()

    def _cancel_after(self, seconds: float) -> None:
        """Let the alarm cancel this task."""
        task = asyncio.current_task()
        assert task is not None     # of a coroutine
        self._alarm.set(time.monotonic() + seconds, task.cancel)


def chunks(parts: list[bytes], size: int) -> Iterator[bytes]:
    """Yield parts joined, or cut, to about `size` bytes each, at least one; the list is empty afterwards."""
    parts.reverse()
    while True:
        some = [parts.pop()]
        while parts and len(some[-1]) + sum(map(len, some[:-1])) < size:
            some.append(parts.pop())
        joined = some[0] if len(some) == 1 else b"".join(some)
        for start in range(0, max(1, len(joined)), size):
            yield joined[start : start + size]
        if not parts:
            return


class Alarm:
    """Calls a function at a time, as one after the other for the parts of a request.

    Its one timer stays when the time is unset or becomes later, and is then set anew when it ends: each timer of the
    event loop takes as long as a small part of a short request.
    """

    __slots__ = ("_call", "_due", "_timer", "rang")

    def __init__(self) -> None:
        self._timer: asyncio.TimerHandle | None = None
        self._due = math.inf
        self._call: Callable[[], object] = _nothing
        self.rang = False
        """Whether the last time has come."""

    def set(self, due: float, call: Callable[[], object]) -> None:
        """Call a function at a `time.monotonic()`, which is that of the event loop, in place of the last one."""
        self._due, self._call, self.rang = due, call, False
        if self._timer is None or due < self._timer.when():
            self._start()

    def unset(self) -> None:
        """Call nothing any more."""
        self._due, self._call = math.inf, _nothing

    def end(self) -> None:
        """End the timer."""
        if self._timer is not None:
            self._timer.cancel()

    def _start(self) -> None:
        self.end()
        self._timer = asyncio.get_running_loop().call_at(self._due, self._ring)

    def _ring(self) -> None:
        self._timer = None
        if time.monotonic() < self._due < math.inf:     # it was set to a later time
            self._start()
        elif self._due < math.inf:
            self.rang = True
            self._call()


def _nothing() -> None:
    pass


class Page:
    """Answers GET with what a function makes of the server, as an ASGI application."""

    def __init__(self, served: Served, answer: Callable[[Served, Scope], Response], is_open: bool):
        """is_open: whether the page needs no key."""
        self._served, self._answer, self._is_open = served, answer, is_open

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = _headers_of(scope)
        request, family = self._served.id_of(headers), TEI if self._answer in (_info, _health) else OPENAI
        try:
            if not self._is_open and self._served.keys.owner(headers.get(b"authorization", b"")) is None:
                raise Refusal("key", NO_KEY)
            response = self._answer(self._served, scope)
            response.headers["x-request-id"] = request
        except Refusal as refusal:
            response = _refused_page(self._served, family, refusal, request)
        await response(scope, receive, send)


def _refused_page(served: Served, family: ErrorForm, refusal: Refusal, request: str) -> Response:
    """Count a refusal, and return the answer that says why."""
    served.metrics.refuse(refusal.reason)
    status, headers, body = refused(family, refusal, request)
    return _response(status, [*headers, (b"x-request-id", request.encode())], body)


def refused(family: ErrorForm, refusal: Refusal, request: str) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
    """Return the status, the headers and the body that say why there is no answer. request: its id."""
    status = family.status(refusal)
    headers = [_JSON]
    if refusal.retry_after is not None:
        headers.append((b"retry-after", b"%d" % max(1, math.ceil(refusal.retry_after))))
    if refusal.reason == "key":
        headers.append((b"www-authenticate", b"Bearer"))
    return status, headers, orjson.dumps(family.body(refusal, status, request))


def _headers_of(scope: Scope) -> dict[bytes, bytes]:
    headers: Iterable[tuple[bytes, bytes]] = scope["headers"]
    return dict(headers)


def _headers_of_answer(answer: Answer, work: Wanted, seconds: float) -> list[tuple[bytes, bytes]]:
    """Return the headers of an answer: what was cut, and what TEI says of the work and its times, in milliseconds."""
    times = answer.times
    headers = [_JSON, (b"x-compute-type", b"cpu"), (b"x-compute-characters", b"%d" % work.characters),
               (b"x-compute-tokens", b"%d" % sum(answer.tokens)),
               *((name, b"%d" % round(1000 * value)) for name, value in (
                   (b"x-total-time", seconds), (b"x-tokenization-time", times.tokenize), (b"x-queue-time", times.queue),
                   (b"x-inference-time", times.compute), (b"x-compute-time", times.tokenize + times.compute)))]
    if cut := sum(answer.truncated):
        headers.append((b"x-engine-truncated", b"%d" % cut))
    return headers


def _response(status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> Response:
    return Response(body, status, {name.decode(): value.decode() for name, value in headers})


def _json(value: Any) -> Response:
    return _response(200, [_JSON], orjson.dumps(value))


def _refuse_path(served: Served, request: Request, error: HTTPException) -> Response:
    """Answer a path or a method that there is not."""
    reason = "method" if error.status_code == 405 else "path"
    what = f"this path does not take {request.method[:20]}" if reason == "method" else "there is no such path here"
    paths = [route.path for route in ROUTES]
    refusal = Refusal(reason, f"{what}; POST goes to {', '.join(paths)}")
    response = _refused_page(served, OPENAI, refusal, served.id_of(_headers_of(request.scope)))
    response.headers.update(error.headers or {})
    return response


def _health(served: Served, scope: Scope) -> Response:
    """Return 200: the service computed a batch when it was made.

    A server that stops is not healthy, nor is one whose model has changed.
    """
    if served.closing:
        raise Refusal("closing", "the server stops, and takes no more requests")
    served.files.check()
    return Response(b"")


def _metrics(served: Served, scope: Scope) -> Response:
    return Response(served.numbers(), headers={"content-type": CONTENT_TYPE.decode()})


def _models(served: Served, scope: Scope) -> Response:
    return _json({"object": "list", "data": [_model_of(served, name) for name in served.settings.names]})


def _model(served: Served, scope: Scope) -> Response:
    name = scope["path_params"]["name"]
    if not served.settings.has(name):
        raise Refusal("model", f"there is no model {shown(name)} here; this server has {listed(served.settings.names)}",
                      "model")
    return _json(_model_of(served, name if name in served.settings.names else served.settings.names[0]))


def _model_of(served: Served, name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": served.created, "owned_by": "encoder-engine",
            "max_input_length": served.longest}


def _info(served: Served, scope: Scope) -> Response:
    """Return what TEI's /info has of this server, and the tasks of the model."""
    model, settings = served.service.model, served.settings
    labels = [] if not hasattr(model, "heads") else getattr(model.heads.get("classify"), "labels", None) or []
    classes = {"id2label": {str(i): label for i, label in enumerate(labels)},
               "label2id": {label: i for i, label in enumerate(labels)}}
    tasks = served.service.tasks
    if "rank" in tasks:
        kind: dict[str, Any] = {"reranker": classes}
    elif "classify" in tasks:
        kind = {"classifier": classes}
    else:
        kind = {"embedding": {"pooling": "+".join(model.text.pooling) if model.text is not None else ""}}
    return _json({"model_id": settings.names[-1], "model_sha": None, "model_dtype": model.precision,
                  "served_model_name": settings.names[0], "model_type": kind, "max_concurrent_requests": None,
                  "max_input_length": served.longest, "max_batch_tokens": settings.max_batch_tokens,
                  "max_batch_requests": None, "max_client_batch_size": None, "auto_truncate": True,
                  "tokenization_workers": model.threads, "version": __version__, "sha": None, "docker_label": None,
                  "payload_limit": settings.max_body, "max_wait": settings.max_wait, "timeout": settings.timeout,
                  "tasks": sorted(tasks), "backend": model.backend,
                  "prompts": sorted(model.text.prompts) if model.text is not None else []})
