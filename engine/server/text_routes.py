"""The routes of OpenAI for chats and completions: work for requests, bodies of answers, and events of streams.

`text_fields.py` has the fields of the requests; `app.py` calls the writers for each answer and each piece of a stream.
"""

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
"""The header of an answer with the names of unknown fields of the request."""
SEED = b"x-engine-seed"
"""The header of an answer with the seed of its random numbers."""
_IMPOSSIBLE = -9999.0
"""The log probability for a token of probability 0, as OpenAI has it: JSON has no -inf."""


@dataclass(frozen=True)
class TextWork:
    """What a service computes for a request for text, and what writes its answer."""

    task: str
    inputs: list[Any]
    options: dict[str, Any]
    settings: TextSettings
    writer: Callable[[str, TextSettings, TextService], TextWriter]
    """Returns the writer of the answer for the id of the answer, the settings and the service."""
    # Whether the request has one prompt, not a list.
    single: bool


def text_service(service: RequestService, path: str) -> TextService:
    """Return the service of a model that writes texts; raises `Refusal` for any other model. path: of the route."""
    if not isinstance(service, TextService):
        raise Refusal("unsupported", f"{path} needs a model that writes texts, and {service.serves}")
    return service


@dataclass(frozen=True)
class TextKind(Kind):
    """One form of the requests of a route for text."""

    table: Mapping[str, TextField] = field(default_factory=lambda: CHAT)
    """The fields of the requests."""
    kind: str = "chatcmpl"
    """The start of the ids of answers."""

    def wanted(self, fields: dict[str, Any], service: RequestService, path: str) -> Wanted:
        """Return the work for the fields of a request; raises `Refusal`."""
        service = text_service(service, path)
        known, unknown = known_fields(fields, self.table)
        work: TextWork = self.work(read_form(known, self.form), service)
        settings = work.settings
        writer = work.writer(id_of(self.kind, known, settings.seed, service.fingerprint), settings, service)
        return Wanted(work.task, work.inputs, writer.body, options=work.options, single=work.single,
                      events=writer if settings.stream else None,
                      headers=[(SEED, b"%d" % settings.seed), *ignored(unknown)])


def ignored(names: Sequence[str]) -> list[tuple[bytes, bytes]]:
    """Return the header with the names of unknown fields, the first 20, in a list; [] without names."""
    return [(IGNORED, ", ".join(map(_printable, names[:20])).encode())] if names else []


def _printable(name: str) -> str:
    """Return the name of a field for a header: 60 characters at most, with ? for those that are not printable ASCII."""
    return "".join(letter if "!" <= letter <= "~" else "?" for letter in name[:60])


def chat(form: Any, service: TextService) -> TextWork:
    """Return the work for a request to /v1/chat/completions; raises `Refusal`."""
    check_messages(form, service)
    settings = read_settings(form, CHAT, service)
    if form.top_logprobs is not None and not form.logprobs:
        raise Refusal("wrong", "top_logprobs needs logprobs: true", "top_logprobs")
    if form.logprobs:
        settings.given["logprobs"] = _count("top_logprobs", form.top_logprobs or 0)
    _check_new_tokens(form, CHAT, settings)
    options = template_options(form) | settings.given | {"places": ["messages"]}
    return TextWork("chat", form.messages, options, settings, ChatWriter, single=True)


def template_options(form: Any) -> dict[str, Any]:
    """Return the options of `Generator.chat` that say how the messages of a form become a prompt."""
    variables = dict(form.chat_template_kwargs or {})
    if form.reasoning_effort is not None:
        variables.setdefault("reasoning_effort", form.reasoning_effort)
    return {"continue_final_message": bool(form.continue_final_message),
            "add_generation_prompt": form.add_generation_prompt, "template_options": variables}


def check_messages(form: Any, service: TextService) -> None:
    """Raise `Refusal` for a form without messages, a model without a template, and parts that are no texts."""
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
    """Return the work for a request to /v1/completions, of one prompt or several; raises `Refusal`."""
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
    else:
        _check_new_tokens(form, COMPLETION, settings, "; with echo: true, 0 gives the prompt alone")
    places = ["prompt"] if single else [f"prompt[{i}]" for i in range(len(prompts))]
    special = True if form.add_special_tokens is None else form.add_special_tokens
    options = settings.given | {"places": places, "add_special_tokens": special}
    return TextWork("generate", prompts, options, settings, partial(CompletionWriter, form=form), single)


def _check_new_tokens(form: Any, table: Mapping[str, TextField], settings: TextSettings, advice: str = "") -> None:
    """Raise `Refusal` for a request for no new token, by the field that says so. advice: the end of the message."""
    if settings.given.get("max_new_tokens") == 0:
        names = [name for name, field in table.items() if field.setting == "max_new_tokens"]
        name = [name for name in names if getattr(form, name) == 0][-1]     # the last one decides
        raise Refusal("wrong", f"{name} must be at least 1, not 0{advice}", name)


def _count(name: str, value: int) -> int:
    """Return the number of likely tokens that a field asks for, 0 to 20 as OpenAI has it; raises `Refusal`."""
    if not 0 <= value <= 20:
        raise Refusal("wrong", f"{name} must be from 0 to 20, not {value}", name)
    return value


class TextWriter(ABC):
    """Writes the body of one answer, or the events of one stream; one event has one piece of text.

    For a body, call `body`. For a stream, call `begin`, then `events` for new pieces, and `end`.
    """

    object = chunk = ""     # the field `object` of a body and of an event

    def __init__(self, name: str, settings: TextSettings, service: TextService):
        """name: the id of the answer."""
        self._name, self._settings, self._service = name, settings, service
        self._created = int(time.time())
        self._read = 0      # the tokens of all prompts
        self._counts: list[tuple[int, int]] = []        # of each ended answer of a stream, from `_count_tokens`

    @property
    def marker(self) -> int | None:
        """The id of the token that ends the reasoning of an answer; None if answers have no reasoning."""
        return None

    def body(self, answer: Answer, asked: Asked) -> Any:
        """Return the body of a whole answer, which has a list of results for each prompt."""
        self._read = sum(answer.tokens)
        texts = [written for of_prompt in answer.value for written in of_prompt]
        choices = [self.choice(i, written) for i, written in enumerate(texts)]
        counts = [self._count_tokens(written.result, bool(written.reasoning)) for written in texts]
        return self._head(self.object, asked) | {"choices": choices, "usage": self._usage(counts)}

    def begin(self, answer: Answer, asked: Asked) -> None:
        """Prepare the parts that all events of a stream share. answer: has the tokens of the prompts."""
        self._read = sum(answer.tokens)
        self._chunk = self._head(self.chunk, asked) | ({"usage": None} if self._settings.usage else {})
        self._start = event(self._chunk).removesuffix(b"}\n\n") + b',"choices":['    # of each event with a choice
        self._begun: set[int] = set()       # the numbers of answers that have an event
        self._has_reasoning: dict[int, bool] = {}       # by the number of the answer

    def events(self, pieces: Sequence[tuple[int, Written]]) -> Iterator[bytes]:
        """Yield the events for new pieces. pieces: (number of the answer, piece), where the last one has its result."""
        for number, piece in pieces:
            self._has_reasoning[number] = self._has_reasoning.get(number, False) or bool(piece.reasoning)
            for choice in self.choices(number, piece):      # the same bytes as `event` of the whole chunk, but faster
                yield b"%b%b]}\n\n" % (self._start, orjson.dumps(choice))
            if piece.result is not None:
                self._counts.append(self._count_tokens(piece.result, self._has_reasoning[number]))

    def end(self) -> bytes:
        """Return the last events of a stream: the numbers of tokens, if they were asked for, and OpenAI's end mark."""
        used = event(self._chunk | {"choices": [], "usage": self._usage(self._counts)}) if self._settings.usage else b""
        return used + b"data: [DONE]\n\n"

    @abstractmethod
    def choice(self, number: int, answer: Written) -> dict[str, Any]:
        """Return the item of `choices` in a body for one answer. number: its index."""

    @abstractmethod
    def choices(self, number: int, piece: Written) -> Iterator[dict[str, Any]]:
        """Yield the item of `choices` for each event that a piece of an answer makes."""

    def _head(self, kind: str, asked: Asked) -> dict[str, Any]:
        """Return the first fields of a body or an event."""
        return {"id": self._name, "object": kind, "created": self._created, "model": asked.model,
                "system_fingerprint": self._service.fingerprint}

    def _count_tokens(self, result: Any, has_reasoning: bool) -> tuple[int, int]:
        """Return (the new tokens of a result with its end token, how many of them are reasoning).

        has_reasoning: whether the answer has any; without `marker` among its tokens, all of it is reasoning.
        """
        new, marker = result.ids[result.echoed :], self.marker
        reasoning = new.index(marker) + 1 if marker in new else len(new) * has_reasoning
        return len(new) + result.ended, reasoning

    def _usage(self, counts: Sequence[tuple[int, int]]) -> dict[str, Any]:
        """Return OpenAI's object `usage`. counts: of all answers to the request, from `_count_tokens`."""
        new, reasoning = (sum(column) for column in zip(*counts, strict=True))
        details = {} if self.marker is None else {"completion_tokens_details": {"reasoning_tokens": reasoning}}
        return {"prompt_tokens": self._read, "completion_tokens": new, "total_tokens": self._read + new} | details


class ChatWriter(TextWriter):
    """Writes the answers to a chat."""

    object, chunk = "chat.completion", "chat.completion.chunk"

    @property
    def marker(self) -> int | None:
        return self._service.marker

    def choice(self, number: int, answer: Written) -> dict[str, Any]:
        """Return the item of `choices` in a body for one whole answer."""
        message = {"role": "assistant", "content": answer.text, "refusal": None}
        if answer.reasoning:
            message["reasoning_content"] = answer.reasoning
        return {"index": number, "message": message, "logprobs": self._logprobs(answer.logprobs),
                "finish_reason": _reason(answer)}

    def choices(self, number: int, piece: Written) -> Iterator[dict[str, Any]]:
        """Yield up to four items: the role before the first piece, new reasoning, new text, and the end."""
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
        """Return the item of `choices` in an event: what an answer has more than before."""
        return {"index": number, "delta": delta, "logprobs": logprobs, "finish_reason": reason}

    def _logprobs(self, logprobs: Sequence[TokenLogprob]) -> Any:
        """Return the field `logprobs` for some tokens; None if the request did not ask for it."""
        if "logprobs" not in self._settings.given:
            return None
        return {"content": [_chat_logprob(token) | {"top_logprobs": [*map(_chat_logprob, token.top)]}
                            for token in logprobs],
                "refusal": None}


class CompletionWriter(TextWriter):
    """Writes completions."""

    object = chunk = "text_completion"

    def __init__(self, *arguments: Any, form: Any):
        super().__init__(*arguments)
        self._top, self._prompt_top = form.logprobs, form.prompt_logprobs       # numbers of likely tokens, or None
        self._echo = bool(form.echo)
        self._offsets: dict[int, int] = {}      # characters of each answer before its next token

    def choice(self, number: int, answer: Written) -> dict[str, Any]:
        """Return the item of `choices` for an answer or for a piece of one, behind the echoed prompt, if any."""
        front, choice = answer.front, dict[str, Any](index=number)      # front: the prompt, with the first piece alone
        logprobs = [*answer.logprobs] if front is None or not self._echo else [*front.logprobs, *answer.logprobs]
        if front is not None and self._prompt_top is not None:
            choice["prompt_logprobs"] = [_by_id(token) for token in front.logprobs]
        return choice | {"text": (front.text if front is not None and self._echo else "") + answer.text,
                         "logprobs": self._logprobs(number, logprobs),
                         "finish_reason": None if answer.result is None else _reason(answer)}

    def choices(self, number: int, piece: Written) -> Iterator[dict[str, Any]]:
        """Yield one item for a piece, unless it says nothing new."""
        if piece != _NO_PIECE:
            yield self.choice(number, piece)

    def _logprobs(self, number: int, logprobs: Sequence[TokenLogprob]) -> Any:
        """Return the field `logprobs` for the next tokens of an answer; None if the request did not ask for it."""
        if self._top is None:
            return None
        offsets, offset = [], self._offsets.get(number, 0)
        for token in logprobs:
            offsets.append(offset)
            offset += len(token.text or "")
        self._offsets[number] = offset
        return {"tokens": [token.text for token in logprobs], "token_logprobs": [*map(_finite, logprobs)],
                "top_logprobs": [_by_text(token) for token in logprobs] if self._top else None, "text_offset": offsets}


_NO_PIECE = Written(logprobs=[])
"""A piece without text, log probabilities or an end, which makes no event of a completion."""


def _by_id(token: TokenLogprob) -> dict[str, Any] | None:
    """Return a token and the likely tokens in its place by their ids, as vLLM has them; None for a first token."""
    if token.logprob is None:
        return None
    return {str(each.id): {"logprob": each.logprob, "decoded_token": each.text} for each in (*token.top, token)}


def _by_text(token: TokenLogprob) -> dict[str, float] | None:
    """Return the log probabilities of a token and the likely tokens in its place by text; None for a first token."""
    if token.logprob is None:
        return None
    by_text: dict[str, float] = {}
    for each in (*token.top, token):        # the likeliest first, which counts where several have one text
        by_text.setdefault(str(each.text), _finite(each) or 0.0)
    return by_text


def _finite(token: TokenLogprob) -> float | None:
    """Return the log probability of a token for JSON, never -inf; None for the first token of a prompt."""
    return None if token.logprob is None else max(token.logprob, _IMPOSSIBLE)


def _chat_logprob(token: TokenLogprob) -> dict[str, Any]:
    """Return a token with its log probability in the form of chats."""
    return {"token": token.text, "logprob": _finite(token), "bytes": None if token.bytes is None else [*token.bytes]}


def _reason(answer: Written) -> str:
    """Return OpenAI's `finish_reason` of an ended answer."""
    assert answer.result is not None
    return "length" if answer.result.finish_reason == "length" else "stop"


def event(value: Any) -> bytes:
    """Return an event of a stream of server-sent events with the JSON of a value."""
    return b"data: %b\n\n" % orjson.dumps(value)


COMMENT = b": the server is at work\n\n"
"""A comment of server-sent events, which clients ignore; it keeps a connection open while no token comes."""
ROUTES = (*(Route(path, TextKind(OPENAI, form_of("ChatForm", CHAT), chat, ("chat",)))
            for path in ("/v1/chat/completions", "/chat/completions")),
          *(Route(path, TextKind(OPENAI, form_of("CompletionForm", COMPLETION), complete, ("generate",), COMPLETION,
                                 "cmpl")) for path in ("/v1/completions", "/completions")))
