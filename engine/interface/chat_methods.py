"""`ChatMethods`: the methods of a `Generator` that take the messages of a chat."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date as Date  # noqa: N812, because an argument is called date
from typing import TYPE_CHECKING, Any

from ..base.arguments import flag, renamed_arguments
from ..base.errors import InputError, located
from ..base.lazy import lazy
from ..base.stop import Stop
from ..chat.messages import conversations_of
from ..chat.template_options import TemplateOptions
from ..methods.chat import CHAT, ChatOptions, conversation_place, prepare_chat_stream
from .loaded import Loaded
from .stream import Stream

if TYPE_CHECKING:
    from ..chat.template import Prompts


class ChatMethods(Loaded):
    """The part of `Generator` for chats: `apply_chat_template`, `chat` and `stream_chat`."""

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
        tools: JSON schemas of functions that the model may call.
        documents: texts for the model to read, as dicts with title and text.
        template: a template of Jinja, or the name of one of the model's; None for the model's own, which is the one
            called "tool_use" where there are tools.
        add_generation_prompt: whether the prompt ends with the start of an answer; None for True, and for False beside
            continue_final_message.
        continue_final_message: True ends the prompt inside of the last message, which the model is to continue; the
            name of a part of it, such as "reasoning_content", continues that part.
        tokenize: True returns the ids.
        control_tokens: for ids: "text", the default, reads control tokens that stand inside of messages, tools and
            options as text; "parse" reads them as control tokens.
        date: what a template writes that asks for the date; None for now, in local time.
        trust_template: whether a template may be rendered where the system has no filter of system calls.
        timeout: seconds after which the call raises `TimedOut`.
        template_options: every other option becomes a variable of the template.

        Raises `InputError` for messages that the template refuses, a template that fails, and values that are no JSON.
        """
        stop, tokenize = Stop.after(timeout), flag("tokenize", tokenize)
        if control_tokens is not None and not tokenize:
            raise InputError("control_tokens decides what becomes of control tokens in ids, and a text cannot carry "
                             "it; say tokenize=True, or leave control_tokens out")
        CHAT.needs(self)
        options = TemplateOptions(tools=tools, documents=documents, template=template, date=date,
                                  add_generation_prompt=add_generation_prompt, template_options=template_options,
                                  continue_final_message=continue_final_message, trust_template=trust_template,
                                  control_tokens="text" if control_tokens is None else control_tokens)
        render = self.chat_prompts.ids if tokenize else self.chat_prompts.text
        conversations, single = conversations_of(messages)
        prompts: list[Any] = []
        for i, conversation in enumerate(conversations):
            with located(conversation_place(i, single)):
                prompts.append(render(conversation, options, stop))
        return prompts[0] if single else prompts

    @renamed_arguments
    def chat(self, messages: Any, *, tools: Any = None, documents: Any = None, template: str | None = None,
             add_generation_prompt: bool | None = None, continue_final_message: bool | str = False,
             control_tokens: str = "text", date: Date | None = None, trust_template: bool = False,
             template_options: Mapping[str, Any] | None = None, timeout: float | None = None, cache_key: str = "",
             **settings: Any) -> Any:
        """Return the answer of the model to a conversation: a `Reply` with message, text, ids and finish_reason.

        messages: one conversation, or a text, which is one message of a user; or a list of conversations, which are
            computed in one batch and give a list.
        template_options: more variables of the template, such as {"enable_thinking": False}.
        settings: those of `generate`, such as max_new_tokens, do_sample and seed; with num_return_sequences above 1,
            each result is a list of replies, best first.
        cache_key: as in `generate`.
        The other arguments are those of `apply_chat_template`.
        """
        stop = Stop.after(timeout)
        options = ChatOptions(tools=tools, documents=documents, template=template, date=date,
                              add_generation_prompt=add_generation_prompt, template_options=template_options,
                              continue_final_message=continue_final_message, trust_template=trust_template,
                              control_tokens=control_tokens, cache_key=cache_key, settings=settings)
        return CHAT.run(self, messages, options, stop)

    @renamed_arguments
    def stream_chat(self, messages: Any, *, tools: Any = None, documents: Any = None, template: str | None = None,
                    add_generation_prompt: bool | None = None, continue_final_message: bool | str = False,
                    control_tokens: str = "text", date: Date | None = None, trust_template: bool = False,
                    template_options: Mapping[str, Any] | None = None, timeout: float | None = None,
                    cache_key: str = "", **settings: Any) -> Stream:
        """Yield the answer to one conversation piece by piece, as `stream` does; the arguments are those of `chat`.

        The texts of all pieces together are the text of the reply of `chat`.
        """
        stop = Stop.after(timeout)
        CHAT.needs(self)
        options = ChatOptions(tools=tools, documents=documents, template=template, date=date,
                              add_generation_prompt=add_generation_prompt, template_options=template_options,
                              continue_final_message=continue_final_message, trust_template=trust_template,
                              control_tokens=control_tokens, cache_key=cache_key, settings=settings)
        [work] = prepare_chat_stream(self, messages, options, stop).works
        return Stream(self.prepared, work, stop)

    @property
    def chat_prompts(self) -> Prompts:
        """Makes prompts from conversations by the template of the model."""
        return self._prompts

    @lazy
    def _prompts(self) -> Prompts:
        """`chat_prompts`, made at its first use. `close` frees attributes with private names, as this one."""
        from ..chat.template import Prompts  # here, because `import engine` shall stay light

        prepared, text = self.prepared, self.text
        return Prompts(None if text is None else text.chat, lambda: prepared.tokenizer(text), prepared.lengths.prompt)
