"""The routes /tokenize, /detokenize and /apply-template of vLLM and llama-server, which need no run of the model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from ..base.errors import UnsupportedError, located
from ..chat.template_options import TemplateOptions
from ..text.tokenizer import NO_TOKENIZER, Tokenizer
from .forms import NO_TASK, Asked, Kind, Route, Wanted, check_most, read_form
from .refusals import OPENAI
from .requests import Answer, RequestService
from .settings import MAX_DECODED, MAX_TOKENIZED
from .text_fields import CHAT, form_of, known_fields
from .text_routes import check_messages, template_options, text_service
from .text_service import TextService

_TOKEN = 160
"""An estimate of the bytes of memory of a token in an answer, with its text."""


class PromptForm(msgspec.Struct, kw_only=True):
    """A request to /tokenize in vLLM's form."""

    model: str | None = None
    prompt: str
    add_special_tokens: bool = True
    return_token_strs: bool | None = None


class ContentForm(msgspec.Struct, kw_only=True):
    """A request to /tokenize in llama-server's form."""

    model: str | None = None
    content: str
    add_special: bool = False
    parse_special: bool = True
    with_pieces: bool = False


class TokensForm(msgspec.Struct, kw_only=True):
    """A request to /detokenize."""

    model: str | None = None
    tokens: list[int]


class ServiceKind(Kind):
    """A form of requests that a worker answers with the tokenizer or the template of a service, without its model."""

    def wanted(self, fields: dict[str, Any], service: RequestService, path: str) -> Wanted:
        """Return the work. Its function `work` gets the service, and not the model; raises `Refusal`."""
        work: Wanted = self.work(read_form(fields, self.form), service)
        return work


class MessagesKind(ServiceKind):
    """A form of requests with the fields of a chat, which need a chat template; unknown fields are ignored."""

    def wanted(self, fields: dict[str, Any], service: RequestService, path: str) -> Wanted:
        """Return the work for the fields of a request; raises `Refusal` for a model that writes no texts."""
        service = text_service(service, path)
        return super().wanted(known_fields(fields, CHAT)[0], service, path)


def tokenize_prompt(form: PromptForm, service: RequestService) -> Wanted:
    """Return the work for the token ids of one text in vLLM's form; raises `Refusal`."""
    check_most("prompt", len(form.prompt), MAX_TOKENIZED, "characters", "tokens")

    def body(answer: Answer, asked: Asked) -> Any:
        """Tokenize the prompt, and return the JSON of the answer; a worker calls it."""
        tokenizer = _tokenizer(service)
        ids = tokenizer.encode(form.prompt, add_special_tokens=form.add_special_tokens)
        return _ids(service, ids, bool(form.return_token_strs))

    return Wanted(NO_TASK, [form.prompt], body, single=True, bytes=_TOKEN * len(form.prompt))


def tokenize_content(form: ContentForm, service: RequestService) -> Wanted:
    """Return the work for the token ids of one text in llama-server's form; raises `Refusal`."""
    check_most("content", len(form.content), MAX_TOKENIZED, "characters", "tokens")

    def body(answer: Answer, asked: Asked) -> Any:
        """Tokenize the content, and return the JSON of the answer; a worker calls it."""
        tokenizer = _tokenizer(service)
        if form.parse_special:
            ids = tokenizer.encode(form.content, add_special_tokens=form.add_special)
        else:
            ids = tokenizer.encode_plain(form.content)
        if not form.with_pieces:
            return {"tokens": ids}
        return {"tokens": [{"id": token, "piece": _piece(tokenizer.token_bytes(token))} for token in ids]}

    return Wanted(NO_TASK, [form.content], body, single=True, bytes=_TOKEN * len(form.content))


def _piece(data: bytes) -> Any:
    """Return the bytes of a token as a text, or as a list of numbers where they are no UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return [*data]


def tokenize_messages(form: Any, service: TextService) -> Wanted:
    """Return the work for the token ids of the prompt of a conversation, in vLLM's form."""
    return _rendered(form, service, lambda options: _ids(
        service, service.model.chat_prompts.ids(form.messages, options), strings=False))


def apply_template(form: Any, service: TextService) -> Wanted:
    """Return the work for the prompt of a conversation as text, in llama-server's form."""
    return _rendered(form, service, lambda options: {
        "prompt": service.model.chat_prompts.text(form.messages, options)})


def _rendered(form: Any, service: TextService, render: Callable[[TemplateOptions], Any]) -> Wanted:
    """Return the work for `render`, which gets the options of the request, and returns the JSON of the answer."""
    check_messages(form, service)
    options = TemplateOptions(**template_options(form))

    def body(answer: Answer, asked: Asked) -> Any:
        with located("messages"):       # an error names the field
            return render(options)

    return Wanted(NO_TASK, [], body, single=True)


def detokenize(form: TokensForm, service: RequestService) -> Wanted:
    """Return the work for the text of token ids, which the answer has under vLLM's name and llama-server's name."""
    check_most("tokens", len(form.tokens), MAX_DECODED, "ids", "a text")

    def body(answer: Answer, asked: Asked) -> Any:
        text = _tokenizer(service).decode(form.tokens, skip_special_tokens=False)
        return {"prompt": text, "content": text}

    return Wanted(NO_TASK, [form.tokens], body, single=True, bytes=_TOKEN * len(form.tokens))


def _ids(service: RequestService, ids: list[int], strings: bool) -> dict[str, Any]:
    """Return token ids in vLLM's form. strings: whether to add the text of each token."""
    tokens = {"token_strs": [_tokenizer(service).token(token) for token in ids]} if strings else {}
    return {"count": len(ids), "max_model_len": service.longest, "tokens": ids} | tokens


def _tokenizer(service: RequestService) -> Tokenizer:
    """Return the tokenizer of a service; raises `UnsupportedError` for a model without one."""
    if service.model.text is None:
        raise UnsupportedError(NO_TOKENIZER)
    tokenizer: Tokenizer = service.model.tokenizer
    return tokenizer


ChatTokensForm = form_of("ChatTokensForm", CHAT)
TOKENIZE = {"prompt": ServiceKind(OPENAI, PromptForm, tokenize_prompt),
            "content": ServiceKind(OPENAI, ContentForm, tokenize_content),
            "messages": MessagesKind(OPENAI, ChatTokensForm, tokenize_messages)}
"""The forms of /tokenize beside TEI's, each by the name of a field that it alone has."""
ROUTES = (Route("/detokenize", ServiceKind(OPENAI, TokensForm, detokenize)),
          Route("/apply-template", MessagesKind(OPENAI, ChatTokensForm, apply_template)))
