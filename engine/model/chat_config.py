"""`ChatConfig`: how a model turns the messages of a chat into a prompt, as its files say it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from ..base.errors import WeightsError, shown
from .config_checks import is_unicode
from .json_values import JsonConfig

DEFAULT, TOOL_USE = "default", "tool_use"
"""The names of the usual template, and of the template for calls with tools."""
MAX_TEMPLATE = 1_000_000
"""The most characters of a template; real ones have up to 30,000."""
MAX_TEMPLATES = 64
MAX_TOKENS = 1000
"""The most special tokens with a name, and the most control tokens, that the files of a model list."""
MAX_TOKEN_TEXT = 1000
"""The most characters of the text or the name of a token, and of the name of a template."""
MAX_RESPONSE = 1_000_000
"""The most characters of a response template, as JSON."""


@dataclass(frozen=True)
class ChatConfig(JsonConfig):
    """The templates of a chat, and the tokens that they may name. Only `engine.chat` renders the templates."""

    called, may_lack = "chat", True

    templates: dict[str, str] = field(default_factory=dict)
    """Templates of Jinja by their names; the usual one is called "default"."""
    special_tokens: dict[str, str] = field(default_factory=dict)
    """The texts of special tokens by the names that templates have for them, such as {"bos_token": "<s>"}."""
    control_tokens: tuple[str, ...] | None = None
    """Added tokens that are control tokens besides the special ones; None to find them in the template's own texts."""
    response_template: Any = None
    """How an answer is parsed: the value of `response_template` in tokenizer_config.json; None if it has none."""

    def __post_init__(self) -> None:
        """Raise `WeightsError`, with everything that is wrong, for impossible settings."""
        problems = []
        for name, most, length in (("templates", MAX_TEMPLATES, MAX_TEMPLATE),
                                   ("special_tokens", MAX_TOKENS, MAX_TOKEN_TEXT)):
            value: Any = getattr(self, name)
            if not isinstance(value, dict) or not all(is_unicode(text) for entry in value.items() for text in entry):
                problems.append(f"{name} must map names to texts, both valid Unicode, not {shown(value)}")
            elif len(value) > most or any(len(key) > MAX_TOKEN_TEXT for key in value):
                problems.append(f"{name} has {len(value):,} entries, or a name of more than {MAX_TOKEN_TEXT:,} "
                                f"characters; at most {most:,} entries are allowed")
            elif max(map(len, value.values()), default=0) > length:
                problems.append(f"{name} has a text of more than {length:,} characters")
        tokens: Any = self.control_tokens
        if tokens is not None and (not isinstance(tokens, tuple) or len(tokens) > MAX_TOKENS
                                   or not all(is_unicode(one) and len(one) <= MAX_TOKEN_TEXT for one in tokens)):
            problems.append(f"control_tokens must be a tuple of at most {MAX_TOKENS:,} texts, or None, not "
                            f"{shown(tokens)}")
        if _json_length(self.response_template) > MAX_RESPONSE:
            problems.append(f"response_template must be JSON of at most {MAX_RESPONSE:,} characters, not "
                            f"{shown(self.response_template)}")
        if problems:
            raise WeightsError("impossible settings of a chat: " + "; ".join(problems))


def _json_length(value: Any) -> int:
    """Return the length of a value as JSON; for a value that JSON cannot hold, a length above `MAX_RESPONSE`."""
    try:
        return len(json.dumps(value))
    except (TypeError, ValueError, RecursionError):
        return MAX_RESPONSE + 1
