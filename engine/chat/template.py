"""`Prompts`: turns the messages of a chat into the text or the ids that a model reads, by the model's own template.

The results are those of `apply_chat_template` of transformers 5.23. This module chooses the template and prepares its
values, and `renderer.py` renders it. In messages, the texts of control tokens such as <|im_end|> stay text: while the
template is rendered, private-use characters mark them (`_Marks`), so that no message can end itself or pose as another.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from typing import Any

from ..base.errors import InputError, listed, shown
from ..base.stop import NEVER, Stop
from ..generation.lengths import Bound
from ..model.chat_config import DEFAULT, TOOL_USE, ChatConfig
from ..text.tokenizer import Tokenizer
from .messages import (
    REASONING,
    Message,
    Plain,
    plain_documents,
    plain_messages,
    plain_tools,
    with_one_text,
    with_reasoning,
)
from .renderer import Renderer, TemplateFailedError
from .template_options import TemplateOptions

_PRIVATE = range(0xF0000, 0xFFFFE)
"""Private-use characters, of which three mark the caller's control tokens while a template is rendered."""
_TAG = "CONTINUE_FINAL_MESSAGE_TAG "
"""A text that is put behind the last message if the answer continues it, to find its end in the rendered text."""
_KEPT = 8
"""The most templates whose literal texts are kept."""


class Prompts:
    """Makes prompts from conversations, for one model. Any thread may call it."""

    def __init__(self, config: ChatConfig | None, tokenizer: Callable[[], Tokenizer], bound: Bound):
        """tokenizer: returns the tokenizer of the model. bound: limits the tokens of a prompt."""
        self._config, self._tokenizer, self._bound = config or ChatConfig(), tokenizer, bound
        self.renderer = Renderer()
        self._texts: OrderedDict[str, str] = OrderedDict()
        """The literal texts of the last templates, by template, joined with U+0000."""

    def text(self, messages: Sequence[Any], options: TemplateOptions, stop: Stop = NEVER) -> str:
        """Return the prompt of a conversation as a text."""
        return self._render(messages, options, self._template(options), Plain(), stop)

    def ids(self, messages: Sequence[Any], options: TemplateOptions, stop: Stop = NEVER) -> list[int]:
        """Return the ids of the prompt of a conversation, without special tokens that the template does not write.

        A prompt above the bound is refused as soon as that is certain.
        """
        template, tokenizer = self._template(options), self._tokenizer()
        if options.control_tokens == "parse":
            text = self._render(messages, options, template, Plain(), stop)
            self._bound.check(tokenizer.least_tokens(text, self._bound.most), at_least=True)
            return tokenizer.encode(text, add_special_tokens=False)
        marks = _Marks(self._control_tokens(template, tokenizer, options, stop), template)
        values, last = self._values(messages, options, template, Plain(marks.put))
        if marks.renew_if_taken():      # a message had one of the marks; do it again with free ones
            values, last = self._values(messages, options, template, Plain(marks.put))
        text = self._rendered(template, values, last, options, stop)
        self._bound.check(tokenizer.least_tokens(text, self._bound.most), at_least=True)
        return _marked_ids(tokenizer, marks.without_joints(text), marks)

    def _template(self, options: TemplateOptions) -> str:
        """Return the template that a call uses; raises `InputError` if there is none."""
        templates = self._config.templates
        if options.template is not None:
            if options.template not in templates and "{" not in options.template:
                known = f", or one of the model's names: {listed(sorted(templates))}" if templates else ""
                raise InputError(f"template is {shown(options.template)}, which has no tag of Jinja, so no message "
                                 "would be in the prompt; give the text of a template and not the name of a "
                                 f"file{known}")
            return templates.get(options.template, options.template)
        if not templates:
            raise InputError("this model has no chat template; pass template=..., a template of Jinja (on the command "
                             "line, --template FILE), or write the prompt as a text and call generate")
        if options.tools is not None and TOOL_USE in templates:
            return templates[TOOL_USE]
        if DEFAULT not in templates:
            raise InputError(f"this model has several chat templates and none is the default; say template=..., one of "
                             f"{listed(sorted(templates))}")
        return templates[DEFAULT]

    def _render(self, messages: Sequence[Any], options: TemplateOptions, template: str, plain: Plain, stop: Stop
                ) -> str:
        """Return the prompt of a conversation as text. plain: turns the caller's values into JSON."""
        values, last = self._values(messages, options, template, plain)
        return self._rendered(template, values, last, options, stop)

    def _values(self, messages: Sequence[Any], options: TemplateOptions, template: str, plain: Plain
                ) -> tuple[dict[str, Any], str | None]:
        """Return (variables of the template, the text that the answer continues or None); the tag follows that text."""
        tools, documents = plain_tools(options.tools, plain), plain_documents(options.documents, plain)
        variables = {name: plain.value(value, name) for name, value in (options.template_options or {}).items()}
        chat = with_reasoning(plain_messages(messages, plain))
        last = _with_tag(chat, options.continue_final_message, template) if options.continue_final_message else None
        values = {**self._config.special_tokens, **variables, "messages": chat, "tools": tools, "documents": documents,
                  "add_generation_prompt": options.add_generation_prompt}
        return values, last

    def _rendered(self, template: str, values: dict[str, Any], last: str | None, options: TemplateOptions, stop: Stop
                  ) -> str:
        """Return the rendered text of a template, up to the end of `last` if that is continued.

        A template that fails with contents in parts is rendered again with the texts of the parts joined, as llama.cpp
        and vLLM do; transformers fails there.
        """
        when: Any = options.date
        try:
            text = self.renderer.render(template, values, when, stop, trusted=options.trust_template)
        except TemplateFailedError:
            chat = [with_one_text(message) for message in values["messages"]]
            if chat == values["messages"]:
                raise
            text = self.renderer.render(template, values | {"messages": chat}, when, stop,
                                        trusted=options.trust_template)
        return text if last is None else _cut_at_tag(text, last)

    def _control_tokens(self, template: str, tokenizer: Tokenizer, options: TemplateOptions, stop: Stop) -> list[str]:
        """Return the added tokens that are control tokens: special tokens, and tokens that the template writes."""
        added, stated = tokenizer.added_tokens, self._config.control_tokens
        if stated is not None:
            return [token for token, special in added.items() if special or token in stated]
        own_texts = self._texts.get(template)
        if own_texts is None:
            own_texts = self.renderer.own_texts(template, stop, trusted=options.trust_template)
            self._texts[template] = own_texts
            while len(self._texts) > _KEPT:
                self._texts.popitem(last=False)
        return [token for token, special in added.items() if special or (token in own_texts and not token.isspace())]


def _private(text: str) -> set[str]:
    """Return the private-use characters of a text that are in `_PRIVATE`."""
    return {letter for letter in set(text) if ord(letter) in _PRIVATE}


def _pattern(tokens: Sequence[str]) -> re.Pattern[str]:
    """Return a pattern that matches any of some tokens, a longer one before a shorter one with which it begins."""
    return re.compile("|".join(map(re.escape, sorted(tokens, key=len, reverse=True))) or "(?!)")


class _Marks:
    """Three private-use characters, in no text of the caller or the template, that mark the caller's control tokens."""

    def __init__(self, control_tokens: Sequence[str], template: str):
        """control_tokens: the texts to mark. template: has none of the marks."""
        self._control = _pattern(control_tokens)
        self._beginnings = {token[:end] for token in control_tokens if not token[0].isalnum()
                            for end in range(1, len(token))}        # all proper prefixes, such as "<|im_"
        self._longest = max(map(len, self._beginnings), default=0)
        self._found = _private(template)        # private-use characters that texts have, so that they cannot be marks
        # Marks: before a control token, behind it, and behind a text whose end may be the beginning of one.
        self.start, self.end, self._joint = map(chr, _PRIVATE[:3])
        self.renew_if_taken()

    def renew_if_taken(self) -> bool:
        """Choose other marks if some text has one of these; return whether so: then all texts have to be marked again.

        Raises `InputError` if too few characters are free.
        """
        if self._found.isdisjoint((self.start, self.end, self._joint)):
            return False
        free = [mark for mark in map(chr, _PRIVATE) if mark not in self._found]
        if len(free) < 3:
            raise InputError("the messages have nearly all private-use characters from U+F0000 to U+FFFFD, and three "
                             'are needed to mark control tokens; take some out, or say control_tokens="parse"')
        self.start, self.end, self._joint = free[:3]
        return True

    def put(self, text: str) -> str:
        """Return a text of the caller with marks around control tokens.

        The joint mark stands behind a beginning of a control token at the end of a text, because the template may put
        another text behind it that completes the token.
        """
        self._found |= _private(text)
        marked = self._control.sub(rf"{self.start}\g<0>{self.end}", text)
        trimmed = marked.rstrip()       # a template may remove the spaces at the end
        if any(trimmed[-size:] in self._beginnings for size in range(1, 1 + min(self._longest, len(trimmed)))):
            return f"{trimmed}{self._joint}{marked[len(trimmed) :]}"
        return marked

    def without_joints(self, text: str) -> str:
        """Return a rendered text without joint marks; an end mark replaces each one that is inside a control token.

        Several texts of the caller make such a token together, and the end mark keeps its parts from becoming a token.
        """
        while self._joint in text:
            parts = text.split(self._joint)
            joints = [*accumulate(map(len, parts[:-1]))]        # places of the marks, in the text without them
            text = "".join(parts)
            inside = {joint for token in self._control.finditer(text)
                      for joint in joints[bisect_right(joints, token.start()) : bisect_left(joints, token.end())]}
            if inside:      # keep the other joints: the parts of a token that was cut may hold another one
                ends = [*joints, len(text)]
                text = text[: ends[0]] + "".join((self.end if here in inside else self._joint) + text[here:after]
                                                 for here, after in pairwise(ends))
        return text


def _marked_ids(tokenizer: Tokenizer, text: str, marks: _Marks) -> list[int]:
    """Return the ids of a rendered text, with control tokens between marks read as plain text; raises `InputError`.

    A template may have separated the two marks. Each mark still ends a piece, so that no token spans its two sides.
    """
    start, end = marks.start, marks.end
    pieces = re.split(f"{start}({_pattern([*tokenizer.added_tokens]).pattern}){end}|[{start}{end}]", text)
    ids = tokenizer.encode(pieces[0], add_special_tokens=False)
    line_end = tokenizer.encode("\n", add_special_tokens=False)
    for i, piece in enumerate(pieces[1:], 1):
        if not piece:       # "" or None, where re.split found a single mark
            continue
        if i % 2 == 0:      # text; the pieces with odd numbers are control tokens between marks
            ids += _ids_of_piece(piece, lambda part: tokenizer.encode(part, add_special_tokens=False), line_end)
            continue
        piece_ids = _ids_of_piece(piece, tokenizer.encode_plain, line_end)
        if tokenizer.token_id(piece) in piece_ids:
            raise InputError(f"Can't sanitize {piece!r}: the tokenizer produces it from plain text; take it out of the "
                             'messages, or say control_tokens="parse"')
        ids += piece_ids
    return ids


def _ids_of_piece(piece: str, encode: Callable[[str], list[int]], line_end: list[int]) -> list[int]:
    """Return the ids of a piece from the middle of a text, encoded behind a line feed, whose ids are removed again.

    SentencePiece would put a space in front of a text that begins with the piece.
    """
    ids = encode("\n" + piece)
    return ids[len(line_end) :] if ids[: len(line_end)] == line_end else encode(piece)


def _with_tag(chat: list[Message], continued: bool | str, template: str) -> str:
    """Append the tag to the text of the last message that is continued, in place; return that text without the tag.

    continued: True for the content, or the name of another part. Raises `InputError`.
    """
    name = continued if isinstance(continued, str) else "content"
    message = chat[-1]
    last: Any = message.get(name)
    if last is None:
        raise InputError(f'continue_final_message is set but the final message has no "{name}" to continue!')
    # The reasoning stands under several keys, of which a template reads one.
    keys = [key for key in REASONING if message.get(key) == last] if name in REASONING else [name]
    if not any(key in template for key in keys):
        raise InputError(f'continue_final_message is set to "{name}" but this is not an accepted field in the '
                         "chat_template")
    if isinstance(last, str):
        for key in keys:
            message[key] = last + _TAG
        return last
    for part in reversed(last) if isinstance(last, list) else ():
        if isinstance(part, dict) and isinstance(part.get("text"), str):
            text: str = part["text"]
            part["text"] = text + _TAG
            return text
    raise InputError("continue_final_message is set but we could not find any text to continue in the final message!")


def _cut_at_tag(text: str, last: str) -> str:
    """Return a rendered text up to the tag. last: the text that is continued, which must be in it."""
    place = text.rfind(_TAG.strip())
    if place < 0 or last.strip() not in text:
        raise InputError("continue_final_message is set but the final message does not appear in the chat after "
                         "applying the chat template! The template changes or leaves out the end of the last message, "
                         "so that it cannot be continued")
    keeps_spaces = text[place : place + len(_TAG)] == _TAG      # the tag ends with a space
    return text[:place] if keeps_spaces else text[:place].rstrip()
