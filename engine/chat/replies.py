"""`Reply`: the answer of a model to a conversation, as `Generator.chat` returns it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..generation.results import Generated


@dataclass(frozen=True)
class Reply:
    """The answer of a model to a conversation."""

    message: dict[str, Any]
    """The answer as a message, with role and content, which you can append to the conversation. Where the last message
    was continued, this is the whole of it."""
    result: Generated
    """What `generate` returns for the prompt."""

    @property
    def text(self) -> str:
        """The text of the answer."""
        assert self.result.text is not None
        return self.result.text

    @property
    def ids(self) -> list[int]:
        """The new tokens, without the end token."""
        return self.result.ids

    @property
    def ended(self) -> bool:
        """Whether the model ended its answer with an end token."""
        return self.result.ended

    @property
    def finish_reason(self) -> str:
        """Why the answer ended, as `Generated.finish_reason`."""
        return self.result.finish_reason

    @classmethod
    def of(cls, result: Generated, last: Any, continued: bool | str) -> Reply:
        """Return the reply of a result with its text.

        last: the last message of the conversation. continued: whether the model went on with it, or the name of the
        part that it went on with.
        """
        assert result.text is not None
        message = {"role": "assistant", "content": result.text}
        if continued:
            name = continued if isinstance(continued, str) else "content"
            message = dict(last) | {name: _continued(last[name], result.text)}
        return cls(message, result)


def _continued(content: Any, text: str) -> Any:
    """Return a content, a text or a list of parts, with `text` appended to its last text."""
    if isinstance(content, str):
        return content + text
    parts: Sequence[Any] = content
    last = max(i for i, part in enumerate(parts) if "text" in part)
    return [dict(part) | {"text": part["text"] + text} if i == last else part for i, part in enumerate(parts)]
