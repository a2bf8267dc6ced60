"""The one table of the fields of requests for text: their types, the settings that they set, and refused fields.

`text_routes.py` reads requests by it, and docs/server.md shows it. A field with the value None counts as left out.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, get_origin

import msgspec

from ..base.errors import InputError, shown
from ..model.generation_config import CHECKS, GREEDY_BELOW, GenerationConfig
from .refusals import Refusal
from .settings import MAX_CHOICES
from .text_service import TextService

_NO_TOOLS = "tools are not supported yet"
_NO_MEDIA = "this model reads and writes texts alone"


@dataclass(frozen=True)
class TextField:
    """One field of a request."""

    kind: Any = Any
    """Its type, for msgspec."""
    setting: str = ""
    """The setting of a generation that gets its value unchanged; "" for a field that is read otherwise."""
    refusal: str = ""
    """Why a request with it is refused, unless its value is one of `harmless`; "" for a field that is supported."""
    harmless: tuple[Any, ...] = ()
    """Values of a refused field that ask for nothing, and so are allowed."""
    has_effect: bool = True
    """False for a field that is allowed and ignored."""

    @property
    def is_list(self) -> bool:
        """Whether its value is a list."""
        return get_origin(self.kind) is list


_NOTHING = TextField(has_effect=False)


def refused(why: str, *harmless: Any) -> TextField:
    """Return a field that is refused except for some harmless values. why: the message, behind the field's name."""
    return TextField(refusal=why, harmless=harmless)


_COMMON: dict[str, TextField] = {
    "model": TextField(str),
    "max_tokens": TextField(int, "max_new_tokens"),
    "max_completion_tokens": TextField(int, "max_new_tokens"),      # the later of two fields wins
    "temperature": TextField(float, "temperature"),
    "top_p": TextField(float, "top_p"),
    "n": TextField(int, "num_return_sequences"),
    "stop": TextField(str | list[str], "stop_strings"),
    "seed": TextField(int),
    "presence_penalty": TextField(float, "presence_penalty"),
    "frequency_penalty": TextField(float, "frequency_penalty"),
    "logit_bias": TextField(dict[str, float]),
    "stream": TextField(bool),
    "stream_options": TextField(dict[str, Any]),
    # Fields of vLLM, llama-server and others.
    "top_k": TextField(int),
    "min_p": TextField(float, "min_p"),
    "repetition_penalty": TextField(float, "repetition_penalty"),
    "n_predict": TextField(int, "max_new_tokens"),
    "repeat_penalty": TextField(float, "repetition_penalty"),
    "min_tokens": TextField(int, "min_new_tokens"),
    "ignore_eos": TextField(bool, "ignore_eos"),
    "include_stop_str_in_output": TextField(bool, "include_stop"),
    "user": _NOTHING,
    "cache_prompt": _NOTHING,
    **dict.fromkeys(("response_format", "grammar", "json_schema", "guided_json", "guided_regex", "guided_choice",
                     "guided_grammar", "structured_outputs"),
                    refused('texts are written without a form yet; leave it out, or say {"type": "text"}',
                             {"type": "text"})),
    "best_of": refused("each answer is one sample, and n says how many there are; leave it out", 1),
    "prompt_logprobs": TextField(int),
}
CHAT: dict[str, TextField] = _COMMON | {
    "messages": TextField(list[Any]),
    "logprobs": TextField(bool),
    "top_logprobs": TextField(int),
    "continue_final_message": TextField(bool),
    "add_generation_prompt": TextField(bool),
    "chat_template_kwargs": TextField(dict[str, Any]),
    "reasoning_effort": TextField(str),
    **dict.fromkeys(("metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key",
                     "prompt_cache_retention", "prompt_cache_options", "parallel_tool_calls", "prediction", "verbosity"
                     ), _NOTHING),
    "prompt_logprobs": refused("a chat has none of its prompt; send the prompt to /v1/completions", 0),
    "tools": refused(_NO_TOOLS, []),
    "tool_choice": refused(_NO_TOOLS, "none", "auto"),
    "functions": refused(_NO_TOOLS, []),
    "function_call": refused(_NO_TOOLS, "none", "auto"),
    "modalities": refused(_NO_MEDIA, ["text"]),
    "audio": refused(_NO_MEDIA),
    "web_search_options": refused("there is no search of the web"),
    "moderation": refused("there is no moderation"),
    "chat_template": refused("the template is that of the model"),
}
COMPLETION: dict[str, TextField] = _COMMON | {
    "prompt": TextField(str | list[str | int | list[int]]),
    "logprobs": TextField(int),
    "echo": TextField(bool),
    "add_special_tokens": TextField(bool),
    "suffix": refused("the model writes what follows a prompt, and not what stands between two texts", ""),
}


def form_of(name: str, fields: Mapping[str, TextField]) -> type[msgspec.Struct]:
    """Return a class of forms for msgspec with all fields of a table, each None by default. name: of the class."""
    return msgspec.defstruct(name, [(key, field.kind | None if field.kind is not Any else Any, None)
                                    for key, field in fields.items()], kw_only=True)


def known_fields(fields: dict[str, Any], table: Mapping[str, TextField]) -> tuple[dict[str, Any], list[str]]:
    """Return the fields of a request that the table has, and the names of unknown ones; raises `Refusal`.

    Fields that are None are left out.
    """
    known, unknown = {}, []
    for name, value in fields.items():
        if (field := table.get(name)) is None:
            unknown.append(name)
        elif value is not None:
            if field.refusal and value not in field.harmless:
                raise Refusal("unsupported", f"{name}: {field.refusal}", name)
            known[name] = value
    return known, unknown


@dataclass(frozen=True)
class TextSettings:
    """The settings of one request for text."""

    given: dict[str, Any]
    """The options of the generation by their names in the library, the seed among them."""
    seed: int
    """The seed of the request, or a new one; the answer has it in a header."""
    stream: bool
    usage: bool
    """Whether a stream ends with an event that has the numbers of tokens."""


def read_settings(form: Any, table: Mapping[str, TextField], service: TextService, prompts: int = 1) -> TextSettings:
    """Return the settings of a form; raises `Refusal`. prompts: the number of prompts in the request.

    The defaults are OpenAI's, not the library's: tokens are drawn without top_k, and an answer may fill the context. A
    model with an encoder, such as a translator, keeps its own search unless the request has a temperature.
    """
    own, settings = service.model.generation, {}
    for name, field in table.items():
        value = getattr(form, name)
        if field.setting and value is not None and (name, value) != ("n_predict", -1):      # -1 is no limit
            settings[field.setting] = checked(name, field.setting, value)
    n = settings.get("num_return_sequences", 1)
    check_choices(n * prompts, "n" if n > 1 else "prompt")
    if form.logit_bias:
        checked("logit_bias", "logit_bias", dict(enumerate(form.logit_bias.values())))     # the keys may be texts
        settings["logit_bias"] = {int(key) if key.isdecimal() and len(key) < 20 else key: value
                                  for key, value in form.logit_bias.items()}
    draws = service.model.encoder_config is None or settings.get("temperature", 0) >= GREEDY_BELOW
    if draws:
        top_k = own.top_k if form.top_k is None else checked("top_k", "top_k", max(0, form.top_k))
        is_default = form.top_k is None and top_k == GenerationConfig.top_k
        settings |= {"do_sample": True, "num_beams": 1, "top_k": 0 if is_default else top_k}
    else:
        settings.pop("temperature", None)
    if "max_new_tokens" not in settings:
        settings["max_length"] = service.most_tokens(n)
    drawn = draws and settings.get("temperature", own.temperature) >= GREEDY_BELOW
    chosen = secrets.randbits(53) if drawn else 0       # 53 bits, which JavaScript has in a number
    seed = chosen if form.seed is None else checked("seed", "seed", form.seed)
    return TextSettings(settings | {"seed": seed}, seed, bool(form.stream), _wants_usage(form))


def check_choices(answers: int, field: str) -> None:
    """Raise `Refusal` for more than `MAX_CHOICES` answers to one request. field: the one to blame, n or prompt."""
    if answers > MAX_CHOICES:
        raise Refusal("wrong", f"this request asks for {answers:,} answers, and one may have {MAX_CHOICES}; send "
                      "several requests", field)


def checked(name: str, setting: str, value: Any) -> Any:
    """Return a value after the library's check of a setting; raises `Refusal`. name: of the field, for the message."""
    try:
        return CHECKS[setting](name, value)
    except InputError as error:
        raise Refusal("wrong", str(error), name) from None


def _wants_usage(form: Any) -> bool:
    """Return whether a stream has to tell the numbers of tokens at its end; raises `Refusal`."""
    usage = (form.stream_options or {}).get("include_usage", False)
    if not isinstance(usage, bool):
        raise Refusal("wrong", f"stream_options.include_usage must be true or false, not {shown(usage)}",
                      "stream_options.include_usage")
    return usage


def id_of(kind: str, fields: Mapping[str, Any], seed: int, fingerprint: str) -> str:
    """Return the id of an answer, a hash: equal requests with equal seeds have equal ids, and equal answers.

    kind: the start of the id. fields: the known fields of the request; whether it streams does not change the id.
    """
    asked = {name: value for name, value in fields.items() if name not in ("stream", "stream_options", "seed", "user")}
    data = json.dumps([kind, asked, seed, fingerprint], sort_keys=True)
    return f"{kind}-{sha256(data.encode()).hexdigest()[:29]}"
