"""Turn the inputs of a model that generates, texts or token ids, into checked requests, for the methods of decoders."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..base.advice.calls import CHAT
from ..base.arguments import refuse_chat, warn_caller
from ..base.errors import InputError, located, shown
from ..base.stop import NEVER, Stop
from ..generation.lengths import Bound
from ..generation.prepared import PreparedModel
from ..generation.results import Request
from ..model.generation_config import GenerationConfig, ids_array
from ..model.text_config import TextConfig
from ..programs.observe import AttentionHead
from ..text.sentences import check_sentences, listed_in_order

_NO_TEMPLATE = ("the model has no chat template; chat(messages, template=...) takes one, or write the prompt as one "
               r"text with the special tokens of the model, such as '<|im_start|>user\nHello<|im_end|>\n"
               r"<|im_start|>assistant\n', which are read as special tokens")
"""The advice for messages of a chat, given to `generate`, if the model has no chat template."""


def place_of(i: int, places: Sequence[str] | None = None) -> str:
    """Return the name of input `i` in error messages. places: the names of all inputs; None to count them from 0."""
    return f"input {i}" if places is None else places[i]


def read_requests(model: PreparedModel, inputs: Any, prompts: Any, config: GenerationConfig, stop: Stop = NEVER, *,
                  places: Sequence[str] | None = None, special: bool = True, bound: Bound | None = None,
                  cache_key: str = "", heads: tuple[AttentionHead, ...] = ()) -> list[Request]:
    """Return a checked request for each input, with its text as ids; raises `InputError`.

    inputs: a text, or a list of texts or of token ids. prompts: the beginnings of the results, for a model with an
    encoder. config: the settings of the requests. places: the names of the inputs in messages. special: whether a text
    gets the special tokens that the tokenizer adds. bound: limits the tokens of an input; None for the model's own
    bound. cache_key: requests with equal keys share the cached beginnings of their prompts. heads: the heads of
    cross-attention whose weights the results have.
    """
    refuse_chat(inputs, _instead_of_messages(model))
    if isinstance(inputs, str):
        inputs, prompts = [inputs], None if prompts is None else [prompts]
    items = listed_in_order(inputs, "the inputs must be a text, or a list of texts or of token ids")
    check_no_prompts(model, prompts)
    starts: list[Any] = [None] * len(items)
    if prompts is not None:
        starts = list_of_items("prompts", prompts)
    if len(starts) != len(items):
        raise InputError(f"there are {len(items)} inputs and {len(starts)} prompts; each input needs one")
    requests = []
    for i, item in enumerate(items):
        stop.check()
        with located(place_of(i, places)):
            source, prompt, text = _parts(model, item, starts[i], special, bound, stop)
        requests.append(Request(source, prompt, config, heads=heads, cache_key=cache_key, text=text))
    return requests


def check_no_prompts(model: PreparedModel, prompts: Any) -> None:
    """Raise `InputError` for prompts of a model without an encoder."""
    if model.encoder_config is None and prompts is not None:
        raise InputError("this model has no encoder, so its inputs are its prompts; leave prompts out")


def _parts(model: PreparedModel, item: Any, prompt: Any, special: bool, bound: Bound | None, stop: Stop
           ) -> tuple[NDArray[np.int64] | None, NDArray[np.int64] | None, str | None]:
    """Return (source int64 [S], prompt int64 [P], text of the prompt) of one input, with None where there is none.

    item: the input: the source of a model with an encoder, otherwise the prompt. prompt: the beginning of the result,
    for a model with an encoder. bound: limits the tokens of the input; None for the model's own bound.
    """
    refuse_chat(item, _instead_of_messages(model))
    lengths = model.lengths
    if model.encoder_config is None:
        ids = read_ids(model, model.text, item, "an input", bound or lengths.prompt, special, stop)
        return None, ids, item if isinstance(item, str) else None
    ids = read_ids(model, model.source_text, item, "an input", bound or lengths.source, special, stop)
    start = None if prompt is None else read_ids(model, model.text, prompt, "a prompt", lengths.prompt, special, stop)
    return ids, start, None


def read_ids(model: PreparedModel, text: TextConfig | None, item: Any, what: str, bound: Bound, special: bool = True,
             stop: Stop = NEVER) -> NDArray[np.int64]:
    """Return the ids, int64 [n], of an item that is a text or ids; raises `InputError` for more than the bound allows.

    text: the tokenizer's configuration. what: the name of the item in messages. special: whether a text gets the
    special tokens that the tokenizer adds.
    """
    if not isinstance(item, str):
        if isinstance(item, (list, tuple)) and any(isinstance(part, str) for part in item):
            raise InputError(f"{what} must be one text or a flat sequence of token ids, not {shown(item)}")
        return ids_array(what, item, bound.check)
    tokenizer, checked = model.tokenizer(text), check_sentences([item])
    bound.check(tokenizer.least_tokens(item, bound.most, stop), at_least=True)      # before all of it is tokenized
    if special:
        [ids] = tokenizer(checked, stop).input_ids
    else:
        ids = np.array(tokenizer.encode(item, add_special_tokens=False, stop=stop), np.int64)
    bound.check(len(ids))
    if special and (start := tokenizer.repeated_start(item, ids)):
        warn_caller(f"{what} begins with {start}, and the tokenizer adds another one, so that there are two; leave "
                    "it out of the text, or say add_special_tokens=False", UserWarning)
    return ids.astype(np.int64)


def list_of_items(name: str, items: Any) -> Any:
    """Return `items` if it is a list, not one text; raises `InputError` otherwise. name: the caller's argument."""
    if isinstance(items, (str, bytes)) or not isinstance(items, (Sequence, np.ndarray)):
        raise InputError(f"the {name} must be a list of texts or of token ids, not {shown(items)}")
    return items


def _instead_of_messages(model: PreparedModel) -> str:
    """Return the advice for a user who gave messages of a chat where a text belongs."""
    chat = None if model.text is None else model.text.chat
    return CHAT if chat is not None and chat.templates else _NO_TEMPLATE
