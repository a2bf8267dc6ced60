"""The routes of OpenAI for speech, transcriptions and translations: fields, bodies of answers, events of streams."""

from __future__ import annotations

import secrets
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import zip_longest
from typing import Any, Literal, NamedTuple

from ..base.errors import InputError
from ..model.generation_config import GREEDY_BELOW
from ..speech.languages import LANGUAGES
from ..speech.segments import Transcript
from ..speech.subtitles import pieces, srt_lines, vtt_lines
from ..speech.tokens import TASK_TRANSCRIBE, TASK_TRANSLATE, TASKS
from .forms import Asked, Kind, Route, Wanted, read_form
from .json_steps import JsonRows
from .multipart import Upload
from .refusals import OPENAI, Refusal
from .requests import Answer, RequestService
from .speech_service import Heard, SpeechService
from .text_fields import TextField, checked, form_of, known_fields, refused
from .text_routes import SEED, event, ignored

FILE = "file"
"""The name of the field with the recording."""
FORMATS = Literal["json", "text", "srt", "verbose_json", "vtt"]
_NO_SPEAKERS = "the model does not tell speakers apart; leave it out"
_NO_HINTS = "the model gets no text beside a recording; leave it out"
TABLE: dict[str, TextField] = {
    "model": TextField(str),
    "language": TextField(str),
    "response_format": TextField(FORMATS),
    "temperature": TextField(float),
    "timestamp_granularities": TextField(list[Literal["segment", "word"]]),
    "stream": TextField(bool),
    "seed": TextField(int),
    "chunking_strategy": refused("a recording is always read in windows that end where segments end; leave it out",
                                 "auto"),
    "include": refused("log probabilities of tokens are not told here; verbose_json has those of segments", []),
    **dict.fromkeys(("prompt", "keywords", "languages"), refused(_NO_HINTS, [])),
    **dict.fromkeys(("known_speaker_names", "known_speaker_references"), refused(_NO_SPEAKERS, [])),
}
"""The fields of a request for speech beside its file."""
class _Subtitles(NamedTuple):
    media_type: str
    lines: Callable[[Transcript, bool], Iterator[str]]
    """Yields the lines for a transcript. The bool says whether words, and not segments, have times."""


_SUBTITLES = {"srt": _Subtitles("text/plain", srt_lines), "vtt": _Subtitles("text/vtt", vtt_lines)}
"""The formats of subtitles by the value of `response_format`."""


@dataclass(frozen=True)
class SpeechKind(Kind):
    """The form of the requests of a route for speech. task: what Whisper does, transcribe or translate."""

    task: str = TASK_TRANSCRIBE

    def wanted(self, fields: Mapping[str, Any], service: RequestService, path: str) -> Wanted:
        """Return the work for the fields of a request: lists of texts, and an `Upload`; raises `Refusal`."""
        if not isinstance(service, SpeechService):
            raise Refusal("unsupported", f"{path} needs a model of speech, and {service.serves}")
        texts = dict(fields)
        upload: Upload = texts.pop(FILE)
        known, unknown = known_fields(_values(texts), TABLE)
        form = read_form(known, self.form, strict=False)        # a form has numbers as texts
        wanted = self.work(form, service)
        return replace(wanted, inputs=upload, headers=[*wanted.headers, *ignored(unknown)])


def _values(fields: Mapping[str, list[str]]) -> dict[str, Any]:
    """Return the value of each field: a list if its name ends in [] or the table says so, otherwise one text.

    fields: all texts that the form has for each name. An empty text counts as left out. Raises `Refusal` for two values
    of a field that is no list.
    """
    values: dict[str, Any] = {}
    for name, texts in fields.items():
        plain, filled = name.removesuffix("[]"), [text for text in texts if text]
        if not filled:
            continue
        if plain != name or (plain in TABLE and TABLE[plain].is_list):
            values[plain] = [*values.get(plain, []), *filled]
        elif len(filled) > 1:
            raise Refusal("wrong", f"{plain} comes {len(filled)} times; give it once", plain)
        else:
            values[plain] = filled[0]
    return values


def transcribe(form: Any, service: SpeechService, task: str) -> Wanted:
    """Return the work for a recording, whose `Upload` the caller adds as its input; raises `Refusal`."""
    format, granularities = form.response_format or "json", form.timestamp_granularities or []
    is_timed = format == "verbose_json" or format in _SUBTITLES
    if granularities and not is_timed:
        raise Refusal("wrong", "timestamp_granularities needs response_format verbose_json, srt or vtt, which have "
                      f"times, and not {format}", "timestamp_granularities")
    if form.stream and format != "json":
        raise Refusal("wrong", f"a stream has events with text, and not {format}; leave response_format or stream out",
                      "response_format")
    options: dict[str, Any] = {"timestamps": "word" if "word" in granularities else is_timed}
    if service.writes_letters:
        _check_letters(form, task)
    temperature, seed, decoding = (0.0, 0, {}) if service.writes_letters else _decoding_of(
        form, service, task, "word" in granularities)
    writer = TranscriptWriter(task, format, granularities, temperature)
    return Wanted("transcribe", inputs=None, body=writer.body, options=options | decoding, single=True,
                  content_type=writer.content_type, events=writer if form.stream else None,
                  headers=[(SEED, b"%d" % seed)])


def _check_letters(form: Any, task: str) -> None:
    """Raise `Refusal` for a translation, a language or a temperature, which a model of letters cannot take."""
    for field, is_asked, what in ((None, task != TASK_TRANSCRIBE, "translates nothing"),
                                  ("language", form.language, "takes no other language"),
                                  ("temperature", form.temperature, "draws nothing at random")):
        if is_asked:
            raise Refusal("unsupported", f"{'' if field is None else f'{field}: '}this model writes the letters "
                          f"that it hears (CTC), in the language that it was trained on, and {what}; "
                          f"{'ask /v1/audio/transcriptions' if field is None else 'leave it out'}, or serve a Whisper",
                          field)


def _decoding_of(form: Any, service: SpeechService, task: str, by_word: bool) -> tuple[float, int, dict[str, Any]]:
    """Return (temperature, seed, options of the decoder) for a request to a Whisper; raises `Refusal`.

    by_word: whether the times of words were asked for.
    """
    try:
        service.model.transcription.tokens.checked_language(form.language, task)
    except InputError as error:
        raise Refusal("wrong", str(error), "language" if form.language else None) from None
    if by_word and not service.model.generation.alignment_heads:
        raise Refusal("unsupported", "the settings of this model name no alignment_heads, which the times of words "
                      "need", "timestamp_granularities")
    temperature = 0.0 if form.temperature is None else checked("temperature", "temperature", form.temperature)
    draws = temperature >= GREEDY_BELOW
    seed = checked("seed", "seed", form.seed) if form.seed is not None else secrets.randbits(53) if draws else 0
    options = {"language": form.language, "task": task, "num_beams": 1, "do_sample": draws}
    return temperature, seed, options | ({"temperature": temperature, "top_k": 0, "seed": seed} if draws else {})


class TranscriptWriter:
    """Writes the body of an answer, or the events of a stream: `begin`, `events` for new pieces, and `end`."""

    def __init__(self, task: str, format: str, granularities: Sequence[str], temperature: float):
        """format: one of `FORMATS`. granularities: what verbose_json has, "segment" and "word"; [] for segments."""
        self._task, self._format, self._temperature = task, format, temperature
        self._granularities = granularities or ["segment"]
        kind = _SUBTITLES[format].media_type if format in _SUBTITLES else "text/plain" if format == "text" else None
        self.content_type = Wanted.content_type if kind is None else f"{kind}; charset=utf-8"

    def body(self, answer: Answer, asked: Asked) -> Any:
        """Return the body of an answer in its format: bytes, or JSON."""
        heard: Heard = answer.value
        if self._format == "text":
            return f"{heard.text}\n".encode()
        if self._format in _SUBTITLES:
            lines: Iterable[str] = _SUBTITLES[self._format].lines(heard.transcript, "word" in self._granularities)
            return "".join(f"{line}\n" for line in lines).encode()
        usage = {"usage": {"type": "duration", "seconds": heard.seconds}}
        if self._format == "json":
            return {"text": heard.text} | usage
        spoken = "en" if self._task == TASK_TRANSLATE else heard.transcript.language      # translations are in English
        fields: dict[str, Any] = {"task": self._task, "language": LANGUAGES.get(spoken, spoken),
                                  "duration": heard.seconds, "text": heard.text}
        if "segment" in self._granularities:
            fields["segments"] = JsonRows(self._segments(heard))
        if "word" in self._granularities:
            fields["words"] = JsonRows({"word": word.text.strip(), "start": word.start, "end": word.end}
                                       for word in pieces(heard.transcript, by_word=True))
        return fields | usage

    def _segments(self, heard: Heard) -> Iterator[dict[str, Any]]:
        """Yield the segments in OpenAI's form; a model of letters leaves the fields of tokens None."""
        segments = heard.transcript.segments
        for i, (segment, note) in enumerate(zip_longest(segments, heard.notes)):
            data = segment.text.encode()
            yield {"id": i, "seek": note and note.seek, "start": segment.start, "end": segment.end,
                   "text": segment.text,
                   "tokens": note.ids if note else [], "temperature": self._temperature,
                   "avg_logprob": note and note.logprob, "compression_ratio": len(data) / len(zlib.compress(data)),
                   "no_speech_prob": note and note.no_speech}

    def begin(self, answer: Answer, asked: Asked) -> None:
        """Do nothing: a stream of a transcript has no first event."""

    def events(self, pieces: Sequence[str | Heard]) -> Iterator[bytes]:
        """Yield an event for each new piece of text, and one for the whole result."""
        for piece in pieces:
            if isinstance(piece, str):
                yield event({"type": "transcript.text.delta", "delta": piece})
            else:
                yield event({"type": "transcript.text.done", "text": piece.text})

    def end(self) -> bytes:
        """Return nothing: the last event says that it is the last."""
        return b""


def _kind(task: str) -> SpeechKind:
    """Return the form of the requests for a task of Whisper."""
    return SpeechKind(OPENAI, form_of("SpeechForm", TABLE), partial(transcribe, task=task), ("transcribe",), task)


ROUTES = tuple(Route(f"{start}/audio/{name}", _kind(task)) for name, task in zip(
    ("transcriptions", "translations"), TASKS, strict=True) for start in ("/v1", ""))
