"""`TemplateOptions`: the options that say how messages become a prompt, with their checks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date as Date  # noqa: N812, because an argument is called date
from datetime import datetime, time
from typing import Any

from ..base.arguments import flag, is_one_of
from ..base.errors import InputError, shown
from ..base.options import Options, option
from ..model.chat_config import MAX_TEMPLATE

CONTROL_TOKENS = ("text", "parse")
"""The values of `control_tokens`: those inside of messages are plain text, or become control tokens."""
_RESERVED = ("messages", "tools", "documents", "add_generation_prompt")
"""The variables of a template that have options of their own."""


def _part(name: str, value: Any) -> bool | str:
    """Return the option continue_final_message: a flag, or the name of a part of a message; raises `InputError`."""
    return value if isinstance(value, str) else flag(name, value)


def _control(name: str, value: Any) -> str:
    """Return the option control_tokens, one of `CONTROL_TOKENS`; raises `InputError`."""
    if not is_one_of(value, CONTROL_TOKENS):
        raise InputError(f'{name} must be "text" or "parse", not {shown(value)}')
    return str(value)


def _template(name: str, value: Any) -> str | None:
    """Return the option template: a text, the name of one, or None; raises `InputError`."""
    if value is not None and (not isinstance(value, str) or len(value) > MAX_TEMPLATE):
        raise InputError(f"{name} must be a template of Jinja of at most {MAX_TEMPLATE:,} characters, the name of one "
                         f"of the model's, or None, not {shown(value)}")
    return value


def _when(name: str, value: Any) -> datetime:
    """Return the option date as a time: a date at its midnight, and None as now; raises `InputError`."""
    if isinstance(value, datetime):
        return value
    if value is not None and not isinstance(value, Date):
        raise InputError(f"{name} must be a datetime.datetime, a datetime.date or None, not {shown(value)}")
    return datetime.now() if value is None else datetime.combine(value, time())


def _variables(name: str, value: Any) -> Mapping[str, Any]:
    """Return more variables of a template by their names; raises `InputError` for a name that has its own option."""
    variables = {} if value is None else value
    if not isinstance(variables, Mapping) or any(
            not isinstance(key, str) or key in _RESERVED for key in variables):
        raise InputError("the options of a template must map names to values, and none of the names may be "
                         f"{', '.join(_RESERVED)}, not {shown(value)}")
    return variables


@dataclass(frozen=True, kw_only=True)
class TemplateOptions(Options):
    """How messages become a prompt, besides the messages."""

    tools: Any = None
    documents: Any = None
    template: str | None = option(None, _template)
    """A template, or the name of one of the model's; None for the model's own."""
    add_generation_prompt: bool | None = None
    """None for a prompt that ends with the start of an answer, unless the last message is to be continued."""
    continue_final_message: bool | str = option(False, _part)
    """Whether the last message is to be continued, or the name of the part of it that is."""
    control_tokens: str = option("text", _control)
    """One of `CONTROL_TOKENS`."""
    date: Date | None = option(None, _when)       # noqa: RUF009, because it returns a field
    """What `strftime_now` writes; None for now, in local time."""
    trust_template: bool = option(False, flag)
    template_options: Mapping[str, Any] | None = option(None, _variables)
    """More variables of the template."""

    def __post_init__(self) -> None:
        super().__post_init__()
        stated, continued = self.add_generation_prompt, self.continue_final_message
        prompted = not continued if stated is None else flag("add_generation_prompt", stated)
        if continued and prompted:
            raise InputError("continue_final_message lets the model go on with the last message, and "
                             "add_generation_prompt lets it begin a new one; leave one of them out")
        object.__setattr__(self, "add_generation_prompt", prompted)
