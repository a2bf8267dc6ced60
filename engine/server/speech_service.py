"""`SpeechService`: serves a model of speech to many clients. It knows nothing of HTTP.

A worker reads a recording; then the queue of the model and the workers compute its windows of 30 s in turns with those
of other recordings, and `TranscriptStream` brings its text to the event loop.
"""

from __future__ import annotations

import math
import mmap
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Hashable
from dataclasses import dataclass
from functools import partial
from itertools import chain, count
from typing import Any

import numpy as np

from ..base.arguments import positive_int
from ..base.errors import Cancelled, EngineError, InputError, Overloaded, UnsupportedError, WeightsError
from ..base.install import require_speech
from ..generation.step_queue import SHARED, StepQueue
from ..generation.works import DecoderWork
from ..interface.transcriber import Transcriber
from ..methods.transcribe import TRANSCRIBE
from ..queues.order import before_end
from ..queues.ticket import Ticket
from ..queues.work import Work
from ..speech import LetterTranscription
from ..speech.audio_files import decoded
from ..speech.samples import MAX_SECONDS, RATE, check_samples
from ..speech.segments import Transcript
from ..speech.windows import WINDOW, Note, Recording
from .admission import Admission
from .event_loop import News
from .multipart import Upload, temporary, write
from .refusals import Refusal
from .requests import Answer, Pending, RequestCounts, RequestService, Times
from .settings import MAX_HELD, Limit
from .workers import Steps

_WINDOW_BYTES = 2**23
"""About how many bytes the features of a window, its vectors and its transcript take."""


@dataclass(frozen=True)
class Heard:
    """The result for one recording."""

    transcript: Transcript
    notes: list[Note]
    """A note for each segment of the transcript; [] for a model of letters."""
    seconds: float
    """The length of the recording in seconds."""

    @property
    def text(self) -> str:
        """The text, without spaces around it."""
        return self.transcript.text.strip()

    @property
    def bytes(self) -> int:
        """An estimate of the bytes of the transcript and of the answer made of it: 512 an object, 8 a character."""
        segments = self.transcript.segments
        return 512 * (1 + len(segments) + sum(len(part.words) for part in segments)) + 8 * len(self.transcript.text)


class Hearing:
    """One recording on its way through the model: the next work of it, and its results so far.

    Its task is a generator, which yields works for the queue and gets their results. Workers run it, one at a time.
    """

    def __init__(self, request: Pending, samples: np.ndarray, wanted: Any, transcription: Any):
        """samples: float32 [samples], at `RATE`. wanted: the options of the request, as `transcription` reads them."""
        self.request, self.seconds = request, len(samples) / RATE
        self.owner = request.owner
        self.stream = TranscriptStream()
        self.begun = time.monotonic()
        self.work: DecoderWork | Work | None = None
        """The next work, until it is submitted to the queue."""
        self.window_ended = False
        """Whether the next work begins another window."""
        self._texts: dict[int, Any] = {}        # the text of a recording that is too short for windows, by its number 0
        self._streamed = 0      # how many segments were added to the stream
        self._returned: Any = None      # the result of the task
        self._ticket: Ticket | None = None       # of the work that is in the queue
        self._closed = False
        self._lock = threading.Lock()       # guards `work`, `_ticket`, `_closed`, and the task
        self.recording: Recording | None = None
        self._task = self._begin(samples, wanted, transcription)

    def _begin(self, samples: np.ndarray, wanted: Any, transcription: Any) -> Any:
        """Return the task, a generator of the works of the recording, each made from the result of the one before."""
        if not transcription.in_windows(len(samples), wanted):
            return transcription.short_task(self._texts, number=0, samples=samples, options=wanted)
        self.recording = transcription.recording(number=0, samples=samples, language=wanted.language, stop=None)
        return transcription.windows_task(self.recording, wanted, self._end_window)

    @property
    def left(self) -> int:
        """An estimate of how many windows of the recording are still to be computed, at least 1."""
        if self.recording is None:
            return 1
        return max(1, math.ceil((self.recording.frames - self.recording.seek) / WINDOW))

    def next(self, result: Any = None) -> DecoderWork | Work | None:
        """Return the next work, made from the result of the last one (None before the first); None at the end."""
        with self._lock:
            try:
                return self._task.send(result)
            except StopIteration as end:
                self._returned = end.value
                return None

    def ask(self, submit: Callable[[Any], Ticket]) -> Ticket | None:
        """Submit the next work by `submit`, and return its ticket; None once the recording is closed."""
        with self._lock:
            work, self.work = self.work, None
            self._ticket = None if self._closed or work is None else submit(work)
            return self._ticket

    def answered(self) -> None:
        """Note that the queue has ended the submitted work; end the task if the recording was closed meanwhile."""
        with self._lock:
            self._ticket = None
            if self._closed:
                self._task.close()

    def close(self) -> None:
        """End the recording, and free what the model keeps for its window, once no step of the model reads it."""
        with self._lock:
            self._closed, ticket = True, self._ticket
            if ticket is None:
                self._task.close()
        if ticket is not None:      # without the lock: `cancel` may call `answered`, which takes it
            ticket.cancel()

    def _end_window(self, seconds: float) -> None:
        """Stream the text of the segments that a window has added; the task calls it at the end of each window."""
        assert self.recording is not None
        self.window_ended = True
        new = self.recording.segments[self._streamed :]
        self._streamed += len(new)
        self.stream.add("".join(segment.text for segment in new))

    def heard(self) -> Heard:
        """Return the result of the whole recording, once the task has ended."""
        if self.recording is not None:
            return Heard(self.recording.transcript(), self.recording.notes, self.seconds)
        text = self._texts[0]
        self.stream.add(text)
        return Heard(Transcript(text, language=""), notes=[], seconds=self.seconds)


class LetterHearing(Hearing):
    """A recording for a model of letters (CTC), whose text is known only at its end."""

    def _begin(self, samples: np.ndarray, wanted: Any, transcription: LetterTranscription) -> Any:
        self._windows = transcription.windows(len(samples))
        return transcription.task(samples, wanted, self._end_window)

    @property
    def left(self) -> int:
        return max(1, self._windows)

    def _end_window(self, seconds: float) -> None:
        """Count a window that has ended; it has no text of its own."""
        self.window_ended = True
        self._windows -= 1

    def heard(self) -> Heard:
        """Return the result, and stream its whole text; the task returns a text alone if no times were asked for."""
        transcript = self._returned
        if not isinstance(transcript, Transcript):
            transcript = Transcript(transcript, language="")
        self.stream.add(transcript.text)
        return Heard(transcript, notes=[], seconds=self.seconds)


class TranscriptStream:
    """The text of a recording as a stream of pieces, with the interface of `TokenStream`, which `app.py` reads.

    Workers add pieces, and the event loop takes them.
    """

    new_tokens = 0
    """The number for the log; the tokens of a recording are not counted."""

    def __init__(self) -> None:
        self._pieces: list[str | Heard] = []
        self._error: BaseException | None = None
        self._begun = False     # whether a piece was added that is not only spaces
        self._held_spaces = ""
        """Spaces at the end of the last piece, which are dropped unless another piece follows."""
        self.news = News()
        """Rings when there is something to take."""
        self._lock = threading.Lock()
        self.ended = False
        """Whether all pieces were taken."""
        self.cancel: Callable[[], object] = lambda: None
        """Cancels the request; `SpeechService` sets it."""

    def add(self, text: str) -> None:
        """Add a piece of text. The whole text has no spaces at its start or end."""
        text = self._held_spaces + text
        if not self._begun:
            text = text.lstrip()
        piece = text.rstrip()
        self._held_spaces = text[len(piece) :]
        self._begun = self._begun or bool(piece)
        if piece:
            self._put(piece)

    def end(self, result: Heard | BaseException) -> None:
        """End the stream with the result of the recording, or with the error of the request."""
        if isinstance(result, Heard):
            self._put(result)
            return
        with self._lock:
            self._error = result
        self.news.ring()

    def take(self) -> list[str | Heard]:
        """Return the pieces that were added since the last call; the last of all is the `Heard`.

        Raises the error of the request once there are no pieces before it. The event loop calls it.
        """
        self.news.answer()
        with self._lock:
            pieces, self._pieces = self._pieces, []
        if not pieces and self._error is not None:
            self.ended = True
            raise self._error
        self.ended = bool(pieces) and isinstance(pieces[-1], Heard)
        return pieces

    def _put(self, piece: str | Heard) -> None:
        """Append a piece, and wake the event loop."""
        with self._lock:
            self._pieces.append(piece)
        self.news.ring()


class HearingTurns:
    """Chooses the recordings whose windows the model computes: at most `most` at a time, as each takes much memory.

    The next recording is one of the owner whose last turn is the longest ago, and of an owner's recordings the one that
    has waited for the longest time. `queues.order.Order` cannot do it: a window is several works, each of which is made
    from the result of the one before, and it keeps its place until the last one.
    """

    def __init__(self, most: int, go: Callable[[Hearing], object]):
        """most: the most recordings with a window in the model. go: starts the next window of a recording."""
        self._most, self._go = most, go
        self._lines: dict[Hashable, deque[Hearing]] = {}        # the waiting recordings of each owner
        self._latest: dict[Hashable, int] = {}      # the number of the last turn of each owner who has any recordings
        self._numbers = count()     # of turns
        self._heard: dict[Hearing, float] = {}      # the recordings with a window in the model: when that began
        self._costs: deque[float] = deque(maxlen=100)       # seconds of the last windows
        self._lock = threading.Lock()       # guards all of these

    @property
    def cost(self) -> float:
        """The mean seconds of the model for a window; 0 before the first one."""
        costs = [*self._costs]
        return sum(costs) / len(costs) if costs else 0.0

    def before_first(self, owner: Hashable) -> int:
        """Return how many windows end before the first window of a new recording of this owner begins."""
        with self._lock:
            if len(self._heard) < self._most:
                return 0
            lines = {other: len(line) for other, line in self._lines.items()}
            return 1 + before_end(lines.pop(owner, 0), 1, lines.values())       # 1 for a window that is computed now

    def before_last(self, owner: Hashable, windows: int) -> int:
        """Return how many windows of other recordings come before the last one of a new recording of this owner.

        windows: how many the new recording has.
        """
        left: dict[Hashable, list[int]] = {}        # for each owner, the windows of each recording that have not begun
        with self._lock:
            for hearing in (*self._heard, *chain.from_iterable(self._lines.values())):
                left.setdefault(hearing.owner, []).append(hearing.left - (hearing in self._heard))
            begun = len(self._heard)
        own = sum(min(each, windows) for each in left.pop(owner, ()))       # recordings of an owner take turns
        return begun + before_end(own, windows, map(sum, left.values()))

    def enter(self, hearing: Hearing) -> None:
        """Let a new recording wait for its turn; start its first window at once if there is a place."""
        with self._lock:
            self._lines.setdefault(hearing.owner, deque()).append(hearing)
        self._start()

    def go_on(self, hearing: Hearing) -> None:
        """Put a recording behind the others of its owner when a window of it has ended and more windows follow.

        Its owner keeps the number of the last turn, and so waits for all other owners. A recording that has left stays
        away.
        """
        with self._lock:
            if hearing not in self._heard:
                return
            self._end_window(hearing)
            self._lines.setdefault(hearing.owner, deque()).append(hearing)
        self._start()

    def leave(self, hearing: Hearing, ended: bool = False) -> None:
        """Forget a recording, waiting or not; a second call does nothing. ended: whether its last window has ended."""
        owner = hearing.owner
        with self._lock:
            line = self._lines.get(owner, deque())
            if hearing in self._heard:
                self._end_window(hearing, ended)
            elif hearing in line:
                line.remove(hearing)
                if not line:
                    del self._lines[owner]
            if owner not in self._lines and all(other.owner != owner for other in self._heard):
                self._latest.pop(owner, None)
        self._start()

    def _end_window(self, hearing: Hearing, ended: bool = True) -> None:
        """Free the place of a window; if it has `ended`, note its share of the time. The caller holds the lock."""
        begun = self._heard.pop(hearing)
        if ended:
            self._costs.append((time.monotonic() - begun) / (len(self._heard) + 1))

    def _start(self) -> None:
        """Start windows while there are free places. `go` runs without the lock, as it may call `leave`."""
        while True:
            with self._lock:
                if len(self._heard) >= self._most or not self._lines:
                    return
                owner = min(self._lines, key=lambda owner: self._latest.get(owner, -1))     # new owners come first
                hearing = self._lines[owner].popleft()
                if not self._lines[owner]:
                    del self._lines[owner]
                self._latest[owner], self._heard[hearing] = next(self._numbers), time.monotonic()
            self._go(hearing)


class SpeechService(RequestService):
    """Serves a model of speech to many clients; it knows nothing of HTTP.

    Each window of 30 s is a few works of the queue of the model, or one of a model of letters (CTC). The queue computes
    it together with windows of others, so a long recording delays others by at most a window. Each request gets the
    result of a call of `Transcriber` for it alone. The arguments of `submit` besides those that all services have:

    task: "transcribe".
    inputs: an `Upload`, which has a file of audio.
    options: those of `Transcriber.transcribe`. The value of an `Answer` is a `Heard`, or a `TranscriptStream`.
    """

    kind = "transcribe"

    def __init__(self, model: Transcriber, *, max_wait: float = 2.0, max_bytes: int = MAX_HELD,
                 max_seconds: float = MAX_SECONDS, beside: RequestService | None = None):
        """Start the thread of a model, and let it compute a window.

        max_wait: the most seconds that a request may wait for its first window; beyond, it is refused. max_bytes: the
        most memory of all open requests, without the keys of windows. max_seconds: of the longest recording.
        beside: a service whose threads and memory this one shares.
        """
        require_speech("soundfile", "reading an audio file")
        self.model, self.max_seconds = model, max_seconds
        super().__init__(min(4, max(2, model.threads // 2)), positive_int("max_bytes", max_bytes), beside)
        queue: Any = model.queue        # a `StepQueue`, or of a model of letters a `ModelQueue`
        self._queue = queue
        self._submit: Callable[..., Ticket] = (
            partial(queue.submit, pace=SHARED) if isinstance(queue, StepQueue) else queue.submit)
        self.writes_letters = isinstance(model.transcription, LetterTranscription)
        """Whether the model spells what it hears (CTC), and generates no tokens."""
        self._hearings = HearingTurns(model.transcription.together(model.generation), self._go)
        # The admission counts seconds of the model here in place of tokens, so its rate is 1 once a cost is known.
        self._admission = Admission(max_wait, lambda: 1.0 if self._hearings.cost else 0.0)
        self._start()

    def _warm(self) -> None:
        # One second of silence.
        self.model.transcribe(np.zeros(RATE, np.float32), **({} if self.writes_letters else {"max_new_tokens": 1}))

    @property
    def tasks(self) -> frozenset[str]:
        return frozenset({TRANSCRIBE.name})

    @property
    def longest(self) -> int | None:
        """None, as it reads no texts."""
        return None

    def _check_first(self, key: str) -> None:
        wait = self._hearings.before_first(key) * self._hearings.cost
        self._admission.check_wait(wait, lambda: wait)

    def _is_long(self, task: str, inputs: Any, size: int) -> bool:
        return True     # decoding an audio file takes long

    def _prepare(self, request: Pending) -> Steps:
        """Read the recording of a request in steps, and return it as a `Hearing` with its first work."""
        if request.task not in self.tasks:
            raise InputError(f"there is no task {request.task}; the model serves {', '.join(self.tasks)}")
        options = TRANSCRIBE.read_options(request.options)
        wanted = TRANSCRIBE.prepare(self.model, [], options, request.stop).wanted
        begun = time.monotonic()
        samples = yield from self._samples(request)
        kind = LetterHearing if self.writes_letters else Hearing
        hearing = kind(request, samples, wanted, self.model.transcription)
        features = None if hearing.recording is None else hearing.recording.features
        request.room.hold(request.base + _WINDOW_BYTES + (0 if features is None else features.bytes))
        if features is not None:
            yield from features.first_pass()
        try:
            hearing.work = hearing.next()
        except InputError as error:     # it is too short for a model of letters
            raise Refusal("wrong", f"file: {error}", "file") from None
        request.inputs, request.tokenize = None, time.monotonic() - begun
        return hearing

    def _samples(self, request: Pending) -> Generator[None, None, np.ndarray]:
        """Decode a recording in steps, and return its samples, float32 [samples], mapped from a temporary file.

        Raises `Refusal` and `Limit`. The file has no name, and its space is free again when the array is gone.
        """
        upload: Upload = request.inputs
        length = 0
        with upload.take() as file, temporary() as copy:
            try:
                for block in decoded(file, "file", math.inf, request.stop):
                    length += len(block)
                    if length > self.max_seconds * RATE:
                        raise Limit(f"the recording has more than {self.max_seconds:,g} s; cut it where nobody speaks, "
                                    "and send its parts")
                    upload.room.hold(upload.size + block.itemsize * length)
                    write(copy, block.tobytes())
                    yield
            except WeightsError as error:
                raise Refusal("wrong", str(error), "file") from None
            except UnsupportedError as error:
                raise Refusal("type", str(error), "file") from None
            if not length:
                raise Refusal("empty", "file: the recording has no samples; send one that has some", "file")
            copy.flush()
            data = mmap.mmap(copy.fileno(), 0, access=mmap.ACCESS_READ)
        upload.room.hold(len(data))
        return check_samples(np.frombuffer(data, np.float32))

    def _admit(self, request: Pending, hearing: Hearing) -> None:
        """Let a recording wait for its first window, or settle its request with `Overloaded`."""
        turns, cost = self._hearings, self._hearings.cost
        try:
            with self._lock:
                if request.settled:
                    return
                wait = turns.before_first(hearing.owner) * cost
                before = turns.before_last(hearing.owner, hearing.left) * cost
                self._admission.check_wait(wait, lambda: wait)
                self._admission.check_end(lambda: before, before, hearing.left * cost, request.stop.left)
                request.prepared = hearing
        except Overloaded as error:
            self._settle(request, error)
            return
        hearing.stream.cancel = partial(self._cancel, request)
        if request.streams:
            self._give(request, Answer(hearing.stream, tokens=[], truncated=[], times=Times(request.tokenize)))
        if hearing.work is None:        # it is too short for a window
            self._finish(request, hearing)
        else:
            turns.enter(hearing)

    def _go(self, hearing: Hearing) -> None:
        """Submit the next work of a recording to the queue; without one, finish its request."""
        request = hearing.request
        if request.settled:
            self._hearings.leave(hearing)
            return
        if hearing.work is None:
            self._finish(request, hearing)
            return
        try:
            ticket = hearing.ask(partial(self._submit, owner=hearing.owner, deadline=request.stop.deadline))
        except EngineError as error:        # the queue has ended
            self._settle(request, error)
            return
        if ticket is not None:
            ticket.add_done_callback(partial(self._end_work, hearing))

    def _end_work(self, hearing: Hearing, ticket: Any) -> None:
        """Let a worker make the next work from the result of the last one; the thread of the queue calls it."""
        hearing.answered()
        if ticket.error is not None:
            self._settle(hearing.request, ticket.error)
        else:
            self._hand_over(hearing.request, lambda: hearing.next(ticket.result()), self._go_on, long=False)

    def _go_on(self, request: Pending, work: DecoderWork | Work | None) -> None:
        """Submit the next work at once, or let the recording wait for its turn if that begins another window."""
        hearing: Hearing = request.prepared
        hearing.work = work
        if hearing.window_ended and work is not None:
            hearing.window_ended = False
            self._hearings.go_on(hearing)
        else:
            self._go(hearing)

    def _finish(self, request: Pending, hearing: Hearing) -> None:
        """Give a request its answer, after the last work of its recording."""
        self._hearings.leave(hearing, ended=True)
        heard = hearing.heard()
        hearing.stream.end(heard)
        times = Times(request.tokenize, queue=0.0, compute=time.monotonic() - hearing.begun)
        self._settle(request, Answer(heard, tokens=[], truncated=[], times=times, bytes=heard.bytes))

    def _settle(self, request: Pending, result: Answer | BaseException) -> None:
        """Give a request its answer or its error, and end its recording and its stream after an error."""
        super()._settle(request, result)
        if isinstance(result, BaseException):
            self._drop(request, result)

    def _cancel(self, request: Pending) -> None:
        """Settle a request that its client has cancelled, and end its recording and its stream."""
        super()._cancel(request)
        self._drop(request, Cancelled())

    def _drop(self, request: Pending, error: BaseException) -> None:
        """End the recording of a request that has an error, and its stream with that error."""
        if request.prepared is not None:
            self._hearings.leave(request.prepared)
            request.prepared.close()
            request.prepared.stream.end(error)

    def statistics(self) -> SpeechStatistics:
        """Return the present numbers of the service."""
        with self._lock:
            return SpeechStatistics(**self._counts(), seconds_of_window=self._hearings.cost)


@dataclass
class SpeechStatistics(RequestCounts):
    """The numbers of a service. Counters grow from the start; gauges are present values."""

    seconds_of_window: float = 0.0
    """Gauge: the mean seconds of the model for each of the last hundred windows."""
