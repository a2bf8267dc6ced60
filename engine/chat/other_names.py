"""What other libraries call the arguments of a chat.

`same` names our argument, with pairs (their value, ours). `instead` says what to do, and accepts the values behind it.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..base.other_names import LACKS, PADDING, POSITIONAL, OtherName, instead, register, same
from ..generation.other_names import GENERATE

_MESSAGES: Mapping[str, OtherName] = {
    "conversation": same("messages"),
    "conversations": same("messages"),
    "chat_template": same("template"),
    "sanitize_control_tokens": same("control_tokens", (True, "text"), (False, "parse")),
    "functions": instead('tools=[{"type": "function", "function": {...}}] takes them'),
}
"""Arguments of the messages and of their template."""

_ANSWERS: Mapping[str, OtherName] = {
    **{name: row for name, row in GENERATE.items()
       if row.ours not in ("inputs", "prompts") and name not in ("messages", "tools")},
    **_MESSAGES,
    "chat_template_kwargs": same("template_options"),
    "tool_choice": instead("tools are given to the template, and the model decides", "auto", "none"),
    "response_format": instead(LACKS),
    "format": instead(LACKS, ""),
    "system": instead('give a first message {"role": "system", "content": ...}'),
    "options": instead("give the settings as arguments, such as temperature=0.5", {}),
    "keep_alive": instead(LACKS),
    "stream": instead("stream_chat(messages) yields the answer piece by piece", False),
    **{name: instead(f'template_options={{"{name}": ...}} gives it to the template, if that asks for it')
       for name in ("enable_thinking", "reasoning_effort")},
    "think": instead("template_options={\"enable_thinking\": ...} gives it to the template, if that asks for it"),
}
"""Arguments of the messages, and of the generation of an answer."""

POSITIONAL |= {
    name: f'{name}("Hello") or {name}([{{"role": "user", "content": "Hello"}}]), and settings have names, such as '
          "max_new_tokens=50" for name in ("chat", "stream_chat")
}

register({
    "chat": _ANSWERS,
    "stream_chat": {**_ANSWERS, "stream": instead("stream_chat always yields the answer piece by piece", True)},
    "apply_chat_template": {
        **_MESSAGES,
        **dict.fromkeys(("padding", "truncation"), instead(PADDING, False)),
        "max_length": instead("a prompt is never cut"),
        "return_tensors": instead("tokenize=True returns a list of ids"),
        "return_dict": instead("tokenize=True returns a list of ids", False),
        "return_assistant_tokens_mask": instead(LACKS, False),
        "tokenizer_kwargs": instead(LACKS, {}),
    },
})
