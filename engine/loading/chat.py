"""Read the templates of a chat, and the special tokens that they may name, from the files of a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..base.errors import WeightsError, shown
from ..files.folder import ModelFolder
from ..files.reading import FormatError
from ..model.chat_config import DEFAULT, MAX_TEMPLATE, MAX_TEMPLATES, ChatConfig
from ..text.vocabularies.tokenizer_settings import FILES, NAMED

TEMPLATE_FILE, TEMPLATE_FOLDER, TEMPLATE_SUFFIX = "chat_template.jinja", "chat_templates", ".jinja"
"""The file of the default template, and the folder of others, whose files are named after the templates."""
_GGUF_KEY = "tokenizer.chat_template"
_GGUF_ROLES = {"bos": "bos_token", "eos": "eos_token", "unknown": "unk_token", "seperator": "sep_token",
               "padding": "pad_token", "mask": "mask_token"}
"""The special tokens of a GGUF file, as its keys spell them, and their names in templates."""


def chat_files(folder: ModelFolder) -> list[str]:
    """Return the names of the files of templates in a folder."""
    others = [f"{TEMPLATE_FOLDER}/{name}" for name in folder.names_in(TEMPLATE_FOLDER, TEMPLATE_SUFFIX)]
    return [*([TEMPLATE_FILE] if folder.has(TEMPLATE_FILE) else []), *others]


def read_chat(folder: ModelFolder) -> ChatConfig | None:
    """Return how messages become a prompt, read from a folder as transformers reads it; None if no file states it.

    Files of templates replace all templates in tokenizer_config.json. response_template and chat_control_tokens are
    further keys of that file; see `ChatConfig`. Raises `WeightsError`.
    """
    settings_file, tokens_file, _ = FILES     # tokenizer_config.json, special_tokens_map.json
    values = folder.read_object_or_empty(settings_file)
    if "added_tokens_decoder" not in values:        # files written before transformers 4.34
        values |= folder.read_object_or_empty(tokens_file)
    templates = {}
    for name in chat_files(folder):
        with folder.naming(name):
            data = folder.read_bytes(name, 4 * MAX_TEMPLATE)        # a character has up to 4 bytes
            try:
                text = data.decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")     # as Python reads a text file
            except UnicodeDecodeError:
                raise FormatError("a template must be UTF-8") from None
        own_name = name.removeprefix(f"{TEMPLATE_FOLDER}/").removesuffix(TEMPLATE_SUFFIX)
        templates[DEFAULT if name == TEMPLATE_FILE else own_name] = text
    with folder.within(settings_file):
        chat = ChatConfig(templates or _stated_templates(values.get("chat_template")),
                          special_tokens=_special_tokens(values), response_template=values.get("response_template"),
                          control_tokens=_control_tokens(values.get("chat_control_tokens")))
    return None if chat == ChatConfig() else chat


def _stated_templates(value: Any) -> dict[str, str]:
    """Return the templates in the older forms of tokenizer_config.json: a text, or a list of objects with names."""
    if value is None:
        return {}
    if isinstance(value, str):
        return {DEFAULT: value}
    entries = value if isinstance(value, list) else [value]
    if len(entries) > MAX_TEMPLATES or not all(isinstance(one, dict) and isinstance(one.get("name"), str)
                                               and isinstance(one.get("template"), str) for one in entries):
        raise WeightsError(f"chat_template must be a text, or a list of at most {MAX_TEMPLATES} objects with a name "
                           f"and a template, not {shown(value)}")
    return {one["name"]: one["template"] for one in entries}


def _special_tokens(values: Mapping[str, Any]) -> dict[str, str]:
    """Return the text of each special token with a name, such as bos_token, by its name.

    values: the contents of tokenizer_config.json; extra_special_tokens are those that only this model has.
    """
    extra = values.get("extra_special_tokens")
    named = {name: values[name] for name in values if name in NAMED or name.endswith("_token")}
    tokens = {}
    for name, value in (named | (extra if isinstance(extra, dict) else {})).items():
        text = value.get("content") if isinstance(value, dict) else value
        if isinstance(text, str):
            tokens[name] = text
        elif name in NAMED and value is not None:
            raise WeightsError(f"{name} must be a token, not {shown(value)}")
    return tokens


def _control_tokens(value: Any) -> tuple[str, ...] | None:
    """Return the control tokens that tokenizer_config.json states; None where it states none."""
    if value is None:
        return None
    if not isinstance(value, list):
        raise WeightsError(f"chat_control_tokens must be a list of texts, not {shown(value)}")
    return tuple(value)


def read_gguf_chat(settings: Mapping[str, Any]) -> ChatConfig | None:
    """Return how messages become a prompt, from the settings of a GGUF file; None if they do not state it.

    Raises `FormatError` and `WeightsError`.
    """
    templates = {}
    for key, value in settings.items():
        if key == _GGUF_KEY or key.startswith(f"{_GGUF_KEY}."):
            if not isinstance(value, str):
                raise FormatError(f"{key} must be a text, not {shown(value)}")
            templates[key[len(_GGUF_KEY) + 1 :] or DEFAULT] = value
    tokens = settings.get("tokenizer.ggml.tokens")
    ids = {ours: settings.get(f"tokenizer.ggml.{role}_token_id") for role, ours in _GGUF_ROLES.items()}
    named = {ours: tokens[number] for ours, number in ids.items()
             if isinstance(tokens, list) and type(number) is int and 0 <= number < len(tokens)}
    return ChatConfig(templates, named) if templates or named else None
