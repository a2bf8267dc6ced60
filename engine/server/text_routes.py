"""The routes of OpenAI for chats and completions: bodies of answers, and events of streams."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import orjson

from ..base.errors import shown
from ..generation.results import TokenLogprob
from .forms import Asked, Kind, Route, Wanted, read_form, texts_or_ids
from .refusals import OPENAI, Refusal
from .requests import Answer, RequestService
from .text_fields import CHAT, COMPLETION, TextField, TextSettings, form_of, id_of, known_fields, read_settings
from .text_service import TextService
from .token_stream import Written

NO_TEMPLATE = ("this model has no chat template, so it reads no messages; send the prompt as one text to "
               "/v1/completions, or serve a folder that has a chat_template.jinja")
IGNORED = b"x-engine-ignored"
"""The header with the names of the fields that were not understood."""
SEED = b"x-engine-seed"
"""The header with the seed of the random numbers."""
_IMPOSSIBLE = -9999.0
"""What OpenAI says of a token without any probability, whose logarithm JSON lacks."""


@dataclass(frozen=True)
class TextWork:
    """What a request for text asks the model for."""

    task: str
    inputs: list[Any]
    options: dict[str, Any]
    settings: TextSettings
    writer: Callable[[str, TextSettings, TextService], TextWriter]
    """Makes the writer of the answer, which has an id."""
    single: bool


def text_service(service: RequestService, path: str) -> TextService:
    """Return the service of a model that writes texts; raises `Refusal` for any other model. path: of the route."""
    if not isinstance(service, TextService):
        raise Refusal("unsupported", f"{path} needs a model that writes texts, and {service.serves}")
    return service


@dataclass(frozen=True)
class TextKind(Kind):
    """The requests of a route that writes texts."""

    table: Mapping[str, TextField] = field(default_factory=lambda: CHAT)
    kind: str = "chatcmpl"
    """How ids begin."""

    def wanted(self, fields: dict[str, Any], service: RequestService, path: str) -> Wanted:
        """Return the work for the fields of a request; raises `Refusal`."""
        service = text_service(service, path)
        known, others = known_fields(fields, self.table)
        work: TextWork = self.work(read_form(known, self.form), service)
        settings = work.settings
        writer = work.writer(id_of(self.kind, known, settings.seed, service.fingerprint), settings, service)
        return Wanted(work.task, work.inputs, writer.body, options=work.options, single=work.single,
                      events=writer if settings.stream else None,
                      headers=[(SEED, b"%d" % settings.seed), *ignored(others)])


def ignored(names: Sequence[str]) -> list[tuple[bytes, bytes]]:
    """Return the header with the names of fields that were not understood, if there are any."""
    return [(IGNORED, ", ".join(map(_printable, names[:20])).encode())] if names else []


def _printable(name: str) -> str:
    """Return the name of a field as a header may have it."""
    return "".join(letter if "!" <= letter <= "~" else "?" for letter in name[:60])


def chat(form: Any, service: TextService) -> TextWork:
    """Return the work for the answers to a chat."""
    check_messages(form, service)
    settings = read_settings(form, CHAT, service)
    if form.top_logprobs is not None and not form.logprobs:
        raise Refusal("wrong", "top_logprobs needs logprobs: true", "top_logprobs")
    if form.logprobs:
        settings.given["logprobs"] = _count("top_logprobs", form.top_logprobs or 0)
    options = template_options(form) | settings.given | {"places": ["messages"]}
    return TextWork("chat", form.messages, options, settings, ChatWriter, single=True)


def template_options(form: Any) -> dict[str, Any]:
    """Return how the messages of a form become a prompt, by the options of `Generator.chat`."""
    variables = dict(form.chat_template_kwargs or {})
    if form.reasoning_effort is not None:
        variables.setdefault("reasoning_effort", form.reasoning_effort)
    return {"continue_final_message": bool(form.continue_final_message),
            "add_generation_prompt": form.add_generation_prompt, "template_options": variables}


def check_messages(form: Any, service: TextService) -> None:
    """Raise `Refusal` for a form without messages, a model without a template, and a part that is no text."""
    if form.messages is None:
        raise Refusal("wrong", "messages: the field is missing", "messages")
    text = service.model.text
    if text is None or text.chat is None or not text.chat.templates:
        raise Refusal("unsupported", NO_TEMPLATE, "messages")
    if not form.messages:
        raise Refusal("empty", "messages is an empty list; a conversation needs one message at least", "messages")
    for i, message in enumerate(form.messages):
        content = message.get("content") if isinstance(message, dict) else None
        for j, part in enumerate(content if isinstance(content, list) else ()):
            kind = part.get("type", "text") if isinstance(part, dict) else part
            if kind not in ("text", "input_text", "output_text"):
                raise Refusal("unsupported", f"a part of a message must be a text, such as {{\"type\": \"text\", "
                              f"\"text\": \"Hello\"}}; {shown(kind)} is not supported", f"messages[{i}].content[{j}]")


def complete(form: Any, service: TextService) -> TextWork:
    """Return the work for completions of prompts."""
    if form.prompt is None:
        raise Refusal("wrong", "prompt: the field is missing", "prompt")
    prompts, single = texts_or_ids("prompt", form.prompt)
    vocab_size = service.model.config.vocab_size
    if any(not 0 <= token < vocab_size for prompt in prompts if isinstance(prompt, list) for token in prompt):
        raise Refusal("wrong", f"prompt has ids of tokens that are not from 0 to {vocab_size - 1}", "prompt")
    settings = read_settings(form, COMPLETION, service, len(prompts))
    if form.logprobs is not None or form.prompt_logprobs is not None:
        settings.given["logprobs"] = max(_count(name, getattr(form, name) or 0)
                                         for name in ("logprobs", "prompt_logprobs"))
    if form.echo or form.prompt_logprobs is not None:
        settings.given["echo"] = True
    elif settings.given.get("max_new_tokens") == 0:
        name = "n_predict" if form.n_predict == 0 else "max_tokens"
        raise Refusal("wrong", f"{name} must be at least 1, not 0; with echo: true, 0 gives the prompt alone", name)
    places = ["prompt"] if single else [f"prompt[{i}]" for i in range(len(prompts))]
    special = True if form.add_special_tokens is None else form.add_special_tokens
    options = settings.given | {"places": places, "add_special_tokens": special}
    return TextWork("generate", prompts, options, settings, partial(CompletionWriter, form=form), single)


def _count(name: str, value: int) -> int:
    """Return how many likely tokens a field asks for; raises `Refusal`."""
    if not 0 <= value <= 20:
        raise Refusal("wrong", f"{name} must be from 0 to 20, not {value}", name)
    return value


class TextWriter(ABC):
    """Writes the body of one answer, or the events of one stream; each event holds one piece of an answer."""

    object = chunk = ""

    def __init__(self, name: str, settings: TextSettings, service: TextService):
        self._name, self._settings, self._service = name, settings, service
        self._created = int(time.time())
        self._prompt = 0
        self._counts: list[tuple[int, int]] = []        # `_count_tokens` of each answer of a stream that has ended

    @property
    def marker(self) -> int | None:
        """The id of the token that ends the reasoning of an answer; None where there is none."""
        return None

    def body(self, answer: Answer, asked: Asked) -> Any:
        """Return the body of an answer."""
        self._prompt = sum(answer.tokens)
        answers = [one for of_input in answer.value for one in of_input]
        choices = [self.choice(i, one) for i, one in enumerate(answers)]
        counts = [self._count_tokens(one.result, bool(one.reasoning)) for one in answers]
        return self._head(self.object, asked) | {"choices": choices, "usage": self._usage(counts)}

    def begin(self, answer: Answer, asked: Asked) -> None:
        """Begin a stream."""
        self._prompt = sum(answer.tokens)
        self._chunk = self._head(self.chunk, asked) | ({"usage": None} if self._settings.usage else {})
        self._start = event(self._chunk).removesuffix(b"}\n\n") + b',"choices":['    # of every event with a choice
        self._begun: set[int] = set()
        self._reasoned: dict[int, bool] = {}

    def events(self, pieces: Sequence[tuple[int, Written]]) -> Iterator[bytes]:
        """Yield the events of pieces, each with the number of its answer."""
        for number, piece in pieces:
            self._reasoned[number] = self._reasoned.get(number, False) or bool(piece.reasoning)
            for choice in self.choices(number, piece):
                yield b"%b%b]}\n\n" % (self._start, orjson.dumps(choice))
            if piece.result is not None:
                self._counts.append(self._count_tokens(piece.result, self._reasoned[number]))

    def end(self) -> bytes:
        """Return the last events of a stream."""
        used = event(self._chunk | {"choices": [], "usage": self._usage(self._counts)}) if self._settings.usage else b""
        return used + b"data: [DONE]\n\n"

    @abstractmethod
    def choice(self, number: int, answer: Written) -> dict[str, Any]:
        """Return an answer in a body."""

    @abstractmethod
    def choices(self, number: int, piece: Written) -> Iterator[dict[str, Any]]:
        """Yield what the events of a piece have."""

    def _head(self, kind: str, asked: Asked) -> dict[str, Any]:
        return {"id": self._name, "object": kind, "created": self._created, "model": asked.model,
                "system_fingerprint": self._service.fingerprint}

    def _count_tokens(self, result: Any, reasoned: bool) -> tuple[int, int]:
        """Return how many tokens the model made for a result, the end token included, and how many of them it reasoned.

        reasoned: whether the answer has reasoning, which is all of it where `marker` has not come.
        """
        new, marker = result.ids[result.echoed :], self.marker
        thought = new.index(marker) + 1 if marker in new else len(new) * reasoned
        return len(new) + result.ended, thought

    def _usage(self, counts: Sequence[tuple[int, int]]) -> dict[str, Any]:
        """Return the object `usage` of an answer from the counts of its parts, which `_count_tokens` gave."""
        new, thought = (sum(column) for column in zip(*counts, strict=True))
        details = {} if self.marker is None else {"completion_tokens_details": {"reasoning_tokens": thought}}
        return {"prompt_tokens": self._prompt, "completion_tokens": new, "total_tokens": self._prompt + new} | details


class ChatWriter(TextWriter):
    """Writes the answers to a chat."""

    object, chunk = "chat.completion", "chat.completion.chunk"

    @property
    def marker(self) -> int | None:
        return self._service.marker

    def choice(self, number: int, answer: Written) -> dict[str, Any]:
        message = {"role": "assistant", "content": answer.text, "refusal": None}
        if answer.reasoning:
            message["reasoning_content"] = answer.reasoning
        return {"index": number, "message": message, "logprobs": self._logprobs(answer.logprobs),
                "finish_reason": _reason(answer)}

    def choices(self, number: int, piece: Written) -> Iterator[dict[str, Any]]:
        if number not in self._begun:
            self._begun.add(number)
            yield self._delta(number, {"role": "assistant", "content": ""})
        if piece.reasoning:
            yield self._delta(number, {"reasoning_content": piece.reasoning})
        if piece.text or piece.logprobs:
            yield self._delta(number, {"content": piece.text}, self._logprobs(piece.logprobs))
        if piece.result is not None:
            yield self._delta(number, {}, reason=_reason(piece))

    def _delta(self, number: int, delta: dict[str, str], logprobs: Any = None, reason: str | None = None
               ) -> dict[str, Any]:
        return {"index": number, "delta": delta, "logprobs": logprobs, "finish_reason": reason}

    def _logprobs(self, logprobs: Sequence[TokenLogprob]) -> Any:
        if "logprobs" not in self._settings.given:
            return None
        return {"content": [_told(one) | {"top_logprobs": [*map(_told, one.top)]} for one in logprobs],
                "refusal": None}


class CompletionWriter(TextWriter):
    """Writes completions."""

    object = chunk = "text_completion"

    def __init__(self, *arguments: Any, form: Any):
        super().__init__(*arguments)
        self._asks, self._tells_prompt = form.logprobs, form.prompt_logprobs
        self._echo = bool(form.echo)
        self._offsets: dict[int, int] = {}

    def choice(self, number: int, answer: Written) -> dict[str, Any]:
        front, choice = answer.front, dict[str, Any](index=number)
        told = [*answer.logprobs] if front is None or not self._echo else [*front.logprobs, *answer.logprobs]
        if front is not None and self._tells_prompt is not None:
            choice["prompt_logprobs"] = [_by_id(one) for one in front.logprobs]
        return choice | {"text": (front.text if front is not None and self._echo else "") + answer.text,
                         "logprobs": self._logprobs(number, told),
                         "finish_reason": None if answer.result is None else _reason(answer)}

    def choices(self, number: int, piece: Written) -> Iterator[dict[str, Any]]:
        if piece != _NO_PIECE:
            yield self.choice(number, piece)

    def _logprobs(self, number: int, logprobs: Sequence[TokenLogprob]) -> Any:
        if self._asks is None:
            return None
        offsets, offset = [], self._offsets.get(number, 0)
        for one in logprobs:
            offsets.append(offset)
            offset += len(one.text or "")
        self._offsets[number] = offset
        return {"tokens": [one.text for one in logprobs], "token_logprobs": [*map(_finite, logprobs)],
                "top_logprobs": [_tops(one) for one in logprobs] if self._asks else None, "text_offset": offsets}


_NO_PIECE = Written(logprobs=[])


def _by_id(one: TokenLogprob) -> dict[str, Any] | None:
    """Return the likely tokens in a place, and the one that is there, as vLLM has them."""
    if one.logprob is None:
        return None
    return {str(each.id): {"logprob": each.logprob, "decoded_token": each.text} for each in (*one.top, one)}


def _tops(one: TokenLogprob) -> dict[str, float] | None:
    """Return the likely tokens in a place, and the one that is there; None for the first token of a prompt."""
    if one.logprob is None:
        return None
    tops: dict[str, float] = {}
    for each in (*one.top, one):        # of several tokens with one text the likeliest
        tops.setdefault(str(each.text), _finite(each) or 0.0)
    return tops


def _finite(one: TokenLogprob) -> float | None:
    """Return a log probability as JSON has it; None for the first token of a prompt."""
    return None if one.logprob is None else max(one.logprob, _IMPOSSIBLE)


def _told(one: TokenLogprob) -> dict[str, Any]:
    return {"token": one.text, "logprob": _finite(one), "bytes": None if one.bytes is None else [*one.bytes]}


def _reason(answer: Written) -> str:
    """Return why an answer ended, in OpenAI's words."""
    assert answer.result is not None
    return "length" if answer.result.finish_reason == "length" else "stop"


def event(value: Any) -> bytes:
    """Return an event of a stream."""
    return b"data: %b\n\n" % orjson.dumps(value)


COMMENT = b": the server is at work\n\n"
"""Keeps a connection open while no token comes."""
ROUTES = (*(Route(path, TextKind(OPENAI, form_of("ChatForm", CHAT), chat, ("chat",)))
            for path in ("/v1/chat/completions", "/chat/completions")),
          *(Route(path, TextKind(OPENAI, form_of("CompletionForm", COMPLETION), complete, ("generate",), COMPLETION,
                                 "cmpl")) for path in ("/v1/completions", "/completions")))
