"""The fields of requests for text: what each becomes, and why some are refused. This is the one table of them.

docs/server.md shows it; the types are what msgspec reads. None, in any field, is as good as leaving it out.
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
    """A field of a request."""

    kind: Any = Any
    """Its type."""
    setting: str = ""
    """The setting of a generation that it is, if it is one as it stands."""
    refusal: str = ""
    """Why it is refused, but for the values of `harmless`."""
    harmless: tuple[Any, ...] = ()
    """Values that ask for nothing."""
    has_effect: bool = True

    @property
    def is_list(self) -> bool:
        """Whether it has several values."""
        return get_origin(self.kind) is list


_NOTHING = TextField(has_effect=False)


def refused(why: str, *harmless: Any) -> TextField:
    """Return a field that is refused, but for some values."""
    return TextField(refusal=why, harmless=harmless)


_COMMON: dict[str, TextField] = {
    "model": TextField(str),
    "max_tokens": TextField(int, "max_new_tokens"),
    "max_completion_tokens": TextField(int, "max_new_tokens"),      # the later one of two fields counts
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
    # Of vLLM, llama-server and others.
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
    """Return the form that msgspec reads."""
    return msgspec.defstruct(name, [(key, field.kind | None if field.kind is not Any else Any, None)
                                    for key, field in fields.items()], kw_only=True)


def known_fields(fields: dict[str, Any], table: Mapping[str, TextField]) -> tuple[dict[str, Any], list[str]]:
    """Return the fields of a request that the table has, and the names of the others; raises `Refusal`."""
    known, others = {}, []
    for name, value in fields.items():
        if (field := table.get(name)) is None:
            others.append(name)
        elif value is not None:
            if field.refusal and value not in field.harmless:
                raise Refusal("unsupported", f"{name}: {field.refusal}", name)
            known[name] = value
    return known, others


@dataclass(frozen=True)
class TextSettings:
    """What a request for text asks for, besides its inputs."""

    given: dict[str, Any]
    """The settings of the generation."""
    seed: int
    stream: bool
    usage: bool
    """Whether a stream ends with the tokens that it took."""


def read_settings(form: Any, table: Mapping[str, TextField], service: TextService, prompts: int = 1) -> TextSettings:
    """Return what a form asks for; raises `Refusal`. prompts: how many the request has.

    Where the request says nothing, the meaning is that of OpenAI's: all tokens may come, and an answer may fill the
    context. A model with an encoder, such as a translator, has its own search unless a temperature is given.
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
    """Raise `Refusal` for a request for too many answers. field: the one that asks for them."""
    if answers > MAX_CHOICES:
        raise Refusal("wrong", f"this request asks for {answers:,} answers, and one may have {MAX_CHOICES}; send "
                      "several requests", field)


def checked(name: str, setting: str, value: Any) -> Any:
    """Return the checked value of a setting; raises `Refusal` that names the field."""
    try:
        return CHECKS[setting](name, value)
    except InputError as error:
        raise Refusal("wrong", str(error), name) from None


def _wants_usage(form: Any) -> bool:
    usage = (form.stream_options or {}).get("include_usage", False)
    if not isinstance(usage, bool):
        raise Refusal("wrong", f"stream_options.include_usage must be true or false, not {shown(usage)}",
                      "stream_options.include_usage")
    return usage


def id_of(kind: str, fields: Mapping[str, Any], seed: int, fingerprint: str) -> str:
    """Return the id of an answer: equal requests with equal seeds have equal ids, and equal answers.

    kind: how it begins. fields: those that were understood; a stream has the id of the answer that is not streamed.
    """
    asked = {name: value for name, value in fields.items() if name not in ("stream", "stream_options", "seed", "user")}
    data = json.dumps([kind, asked, seed, fingerprint], sort_keys=True)
    return f"{kind}-{sha256(data.encode()).hexdigest()[:29]}"
