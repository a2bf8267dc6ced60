"""`ChatMethods`: the methods of a `Generator` that take the messages of a chat."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date as Date  # noqa: N812, because an argument is called date
from typing import TYPE_CHECKING, Any

from ..base.advice import CHAT
from ..base.arguments import flag, renamed_arguments
from ..base.errors import InputError, UnsupportedError, located
from ..base.lazy import lazy
from ..base.stop import Stop
from .messages import conversations_of

if TYPE_CHECKING:
    from ..generation.prepared import PreparedModel
    from ..model.text_config import TextConfig
    from .template import Prompts, TemplateOptions

_NO_TEMPLATE = ("the model has no chat template; chat(messages, template=...) takes one, or write the prompt as one "
               r"text with the special tokens of the model, such as '<|im_start|>user\nHello<|im_end|>\n"
               r"<|im_start|>assistant\n', which are read as special tokens")
"""What to do with the messages of a chat where the model has no template."""


@dataclass(frozen=True)
class Reply:
    """What a model answered to a conversation."""

    message: dict[str, Any]
    """The answer as a message, with role and content, which you can append to the conversation. Where the last message
    was continued, this is the whole of it."""
    text: str
    ids: list[int]
    """The new tokens, without the end token."""
    ended: bool
    """True if the model ended its answer; False if the answer has its greatest length."""


class ChatMethods:
    """`apply_chat_template`, `chat` and `stream_chat`, for a class that has `generate` and `stream`."""

    text: TextConfig | None
    _model: PreparedModel

    if TYPE_CHECKING:

        def _results(self, inputs: Any, stop: Stop, **options: Any) -> Iterator[Any]: ...

        def _stream(self, source: Any, stop: Stop, **options: Any) -> Any: ...

    @renamed_arguments
    def apply_chat_template(
        self, messages: Any, tools: Any = None, *, documents: Any = None, template: str | None = None,
        add_generation_prompt: bool | None = None, continue_final_message: bool | str = False, tokenize: bool = False,
        control_tokens: str | None = None, date: Date | None = None, trust_template: bool = False,
        timeout: float | None = None, **template_options: Any
    ) -> Any:  # fmt: skip
        """Return the prompt of a conversation by the template of the model's files, as transformers renders it.

        messages: the messages of one conversation, each a dict with role and content; a text, which is one message of a
            user; or a list of conversations, which gives a list of prompts. A content is a text or a list of parts such
            as {"type": "text", "text": "Hello"}; a template that fails with parts gets their texts in lines.
        tools: JSON schemas of functions that the model may call. documents: dicts with title and text.
        template: a template of Jinja, or the name of one of the model's; None for the model's own, which is the one
            called "tool_use" where there are tools.
        add_generation_prompt: whether the prompt ends with the start of an answer; None for True, and for False beside
            continue_final_message. continue_final_message: True ends the prompt
            inside of the last message, which the model is to continue; the name of a part of it, such as
            "reasoning_content", continues that part.
        tokenize: True returns the ids. control_tokens, for ids: "text", the default, reads control tokens that stand
            inside of messages, tools and options as text; "parse" reads them as control tokens.
        date: what a template writes that asks for the date; None for now, in local time.
        trust_template: whether a template may be rendered where the system has no filter of system calls.
        timeout: seconds after which the call raises `TimedOut`. Every other option becomes a variable of the template.

        Raises `InputError` for messages that the template refuses, a template that fails, and values that are no JSON.
        """
        stop, tokenize = Stop.after(timeout), flag("tokenize", tokenize)
        if control_tokens is not None and not tokenize:
            raise InputError("control_tokens decides what becomes of control tokens in ids, and a text cannot carry "
                             "it; say tokenize=True, or leave control_tokens out")
        options = self._options(tools=tools, documents=documents, template=template, date=date,
                                add_generation_prompt=add_generation_prompt, values=template_options,
                                continue_final_message=continue_final_message, trust_template=trust_template,
                                control_tokens="text" if control_tokens is None else control_tokens)
        make = self._prompts.ids if tokenize else self._prompts.text
        conversations, single = conversations_of(messages)
        prompts: list[Any] = []
        for i, conversation in enumerate(conversations):
            with located(_place(i, single)):
                prompts.append(make(conversation, options, stop))
        return prompts[0] if single else prompts

    @renamed_arguments
    def chat(self, messages: Any, *, tools: Any = None, documents: Any = None, template: str | None = None,
             add_generation_prompt: bool | None = None, continue_final_message: bool | str = False,
             control_tokens: str = "text", date: Date | None = None, trust_template: bool = False,
             template_options: Mapping[str, Any] | None = None, timeout: float | None = None, **settings: Any) -> Any:
        """Return the answer of the model to a conversation: a `Reply` with message, text, ids and ended.

        messages: one conversation, or a text, which is one message of a user; or a list of conversations, which are
        computed in one batch and give a list.
        template_options: more variables of the template, such as {"enable_thinking": False}. settings: those of
        `generate`, such as max_new_tokens, do_sample and seed; with num_return_sequences above 1, each result is a list
        of replies, best first. The other arguments are those of `apply_chat_template`.
        """
        stop = Stop.after(timeout)
        options = self._options(tools=tools, documents=documents, template=template, date=date,
                                add_generation_prompt=add_generation_prompt, values=template_options or {},
                                continue_final_message=continue_final_message, trust_template=trust_template,
                                control_tokens=control_tokens)
        _check_begins(options)
        conversations, single = conversations_of(messages)
        prompts = []
        for i, conversation in enumerate(conversations):
            with located(_place(i, single)):
                prompts.append(self._prompts.ids(conversation, options, stop))
        places = [_place(i, single) for i in range(len(prompts))]
        replies = [_reply(result, conversation[-1], options.continue_final_message) for result, conversation in
                   zip(self._results(prompts, stop, places=places, **settings), conversations, strict=True)]
        return replies[0] if single else replies

    @renamed_arguments
    def stream_chat(self, messages: Any, *, tools: Any = None, documents: Any = None, template: str | None = None,
                    add_generation_prompt: bool | None = None, continue_final_message: bool | str = False,
                    control_tokens: str = "text", date: Date | None = None,
                    trust_template: bool = False, template_options: Mapping[str, Any] | None = None,
                    timeout: float | None = None, **settings: Any) -> Any:
        """Yield the answer to one conversation piece by piece, as `stream` does; the arguments are those of `chat`.

        The texts of all pieces together are the text of the reply of `chat`.
        """
        stop = Stop.after(timeout)
        options = self._options(tools=tools, documents=documents, template=template, date=date,
                                add_generation_prompt=add_generation_prompt, values=template_options or {},
                                continue_final_message=continue_final_message, trust_template=trust_template,
                                control_tokens=control_tokens)
        _check_begins(options)
        [conversation, *others], single = conversations_of(messages)
        if not single:
            raise InputError(f"stream_chat takes one conversation, not a list of {1 + len(others)}; call it for each, "
                             "as many at once as you like, or call chat, which takes a list")
        with located(_place(0, single)):
            prompt = self._prompts.ids(conversation, options, stop)
        return self._stream(prompt, stop, **settings)

    @property
    def _instead_of_messages(self) -> str:
        """What to do with messages in place of a text."""
        chat = None if self.text is None else self.text.chat
        return CHAT if chat is not None and chat.templates else _NO_TEMPLATE

    def _options(self, **given: Any) -> TemplateOptions:
        from .template import TemplateOptions  # here, because `import engine` shall stay light

        if self._model.encoder_config is not None:
            raise UnsupportedError("this model has an encoder, which reads a source and no chat; call generate")
        return TemplateOptions(**given).checked()

    @lazy
    def _prompts(self) -> Prompts:
        from .template import Prompts  # here, because `import engine` shall stay light

        model, text = self._model, self.text
        return Prompts(None if text is None else text.chat, lambda: model.tokenizer(text), model.lengths.prompt)


def _check_begins(options: TemplateOptions) -> None:
    """Raise `InputError` for an answer that neither begins a message nor goes on with one."""
    if not options.add_generation_prompt and not options.continue_final_message:
        raise InputError("add_generation_prompt=False leaves out the start of the answer; leave it out, or say "
                         "continue_final_message=True to go on with the last message")


def _place(i: int, single: bool) -> str:
    """Return what an error message calls a conversation."""
    return "the conversation" if single else f"conversation {i}"


def _reply(result: Any, last: Any, continued: bool | str) -> Any:
    """Return the reply of a result of `generate`, or the list of replies of a list; last: the last message."""
    if isinstance(result, list):
        return [_reply(one, last, continued) for one in result]
    message = {"role": "assistant", "content": result.text}
    if continued:
        name = continued if isinstance(continued, str) else "content"
        message = dict(last) | {name: _continued(last[name], result.text)}
    return Reply(message, result.text, result.ids, result.ended)


def _continued(content: Any, text: str) -> Any:
    """Return a content, which is a text or a list of parts, with a text behind its last text."""
    if isinstance(content, str):
        return content + text
    parts: Sequence[Any] = content
    at = max(i for i, part in enumerate(parts) if "text" in part)
    return [dict(part) | {"text": part["text"] + text} if i == at else part for i, part in enumerate(parts)]
