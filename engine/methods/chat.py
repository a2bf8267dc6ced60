"""`Generator.chat` and `stream_chat`: the replies of a model to conversations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..base.errors import InputError, UnsupportedError, located
from ..base.options import option
from ..base.stop import NEVER, Stop
from ..chat import Reply
from ..chat.messages import conversations_of
from ..chat.template_options import TemplateOptions
from ..text.sentences import check_text
from .decoding import DecoderMethod, GeneratingOptions, PreparedWorks
from .generate import GENERATE, GenerateOptions, prepare_one

if TYPE_CHECKING:
    from ..chat.template import Prompts


@dataclass(frozen=True, kw_only=True)
class ChatOptions(TemplateOptions, GeneratingOptions):
    """The options of `Generator.chat` that say what is computed: those of the template and of the generation."""

    cache_key: str = option("", check_text)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.add_generation_prompt and not self.continue_final_message:
            raise InputError("add_generation_prompt=False leaves out the start of the answer; leave it out, or say "
                             "continue_final_message=True to go on with the last message")
        if self.settings.get("echo"):
            raise InputError("echo=True puts the prompt in front, and a reply is the answer alone; leave echo out, or "
                             "call generate(apply_chat_template(messages), add_special_tokens=False, echo=True)")


def check_chats(model: Any) -> None:
    """Raise `UnsupportedError` for a model that reads a source and no chat, or without a tokenizer."""
    prepared = model.prepared
    if prepared.encoder_config is not None:
        raise UnsupportedError("this model has an encoder, which reads a source and no chat; call generate")
    prepared.tokenizer(prepared.text)


def conversation_place(i: int, single: bool) -> str:
    """Return the name of conversation `i` in error messages. single: whether the caller gave one, not a list."""
    return "the conversation" if single else f"conversation {i}"


def _prepare(model: Any, messages: Any, options: ChatOptions, stop: Stop = NEVER,
             places: Sequence[str] | None = None) -> PreparedWorks:
    """Return the call of `generate` for the prompts of one conversation or a list of them; its results are replies."""
    chat_prompts: Prompts = model.chat_prompts
    conversations, single = conversations_of(messages)
    places = places or [conversation_place(i, single) for i in range(len(conversations))]
    prompts = []
    for place, conversation in zip(places, conversations, strict=True):
        with located(place):
            prompts.append(chat_prompts.ids(conversation, options, stop))
    generate_options = GenerateOptions(settings=options.settings, cache_key=options.cache_key)
    generated = GENERATE.prepare(model, prompts, generate_options, stop, places)

    def finish(i: int, results: Any) -> Any:
        """Return the reply to conversation `i`, or a list of replies if several were asked for."""
        finished, last_message = generated.finish(i, results), conversations[i][-1]
        if isinstance(finished, list):
            return [Reply.of(result, last_message, options.continue_final_message) for result in finished]
        return Reply.of(finished, last_message, options.continue_final_message)

    return replace(generated, finish=finish, single=single)


def prepare_chat_stream(model: Any, messages: Any, options: ChatOptions, stop: Stop = NEVER) -> PreparedWorks:
    """Return the call for one conversation, for a caller that reads the tokens of the answer one by one.

    Its result is a `Generated`, and not a `Reply`. Raises `InputError` for a list of conversations.
    """
    [conversation, *others], single = conversations_of(messages)
    if not single:
        raise InputError(f"stream_chat takes one conversation, not a list of {1 + len(others)}; call it for each, "
                         "as many at once as you like, or call chat, which takes a list")
    with located(conversation_place(0, single)):
        prompt = model.chat_prompts.ids(conversation, options, stop)
    generate_options = GenerateOptions(settings=options.settings, cache_key=options.cache_key)
    return prepare_one(model, "stream", source=prompt, prompt=None, options=generate_options, stop=stop)


CHAT = DecoderMethod("chat", ChatOptions, check_chats, _prepare)
