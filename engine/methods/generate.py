"""`Generator.generate`, `results`, `stream` and `Session.submit`: new tokens for texts or ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ..base.arguments import flag
from ..base.errors import InputError, located
from ..base.options import option
from ..base.stop import NEVER, Stop
from ..encoding.outputs import read_attention_heads
from ..generation.prepared import PreparedModel
from ..generation.results import Generated
from ..model.generation_config import GenerationConfig
from ..programs.observe import AttentionHead
from ..text.sentences import check_text
from .decoding import DecoderMethod, GeneratingModel, GeneratingOptions, PreparedWorks
from .inputs import place_of, read_requests


@dataclass(frozen=True, kw_only=True)
class GenerateOptions(GeneratingOptions):
    """The options of `Generator.generate` that say what is computed."""

    prompts: Any = None
    add_special_tokens: bool = option(True, flag)
    output_attentions: Any = None
    cache_key: str = option("", check_text)


def _prepare(model: GeneratingModel, inputs: Any, options: GenerateOptions, stop: Stop = NEVER,
             places: Sequence[str] | None = None) -> PreparedWorks:
    """Return the call for a text, or a list of texts or of token ids."""
    return _requests(model.prepared, inputs, options, model.prepared.settings_of_call(options.settings), stop, places)


def _requests(model: PreparedModel, inputs: Any, options: GenerateOptions, config: GenerationConfig, stop: Stop,
              places: Sequence[str] | None) -> PreparedWorks:
    """Return the call with these settings: a checked work for each input, and what makes its results.

    places: what messages call each input; None to count them from 0.
    """
    asked = _heads(model, options.output_attentions)
    heads, samples, works = tuple(dict.fromkeys(asked.values())), config.num_return_sequences, []
    for i, request in enumerate(read_requests(model, inputs, options.prompts, config, stop, places=places, heads=heads,
                                              special=options.add_special_tokens, cache_key=options.cache_key)):
        with located(place_of(i, places)):
            works.append(model.checked(request))

    echoes = [work.echo for work in works]      # without the works, which may hold much memory

    def finish(i: int, results: Sequence[Generated]) -> Any:
        """Return the results of one work with their texts, and with the weights of the heads as they were asked for."""
        results = [model.with_text(result, echoes[i]) for result in results]
        if asked:
            results = [replace(one, attentions={given: one.attentions[head] for given, head in asked.items()})
                       for one in results]
        return results if samples > 1 else results[0]

    return PreparedWorks(model.queue, works, finish, partial(place_of, places=places), isinstance(inputs, str), samples)


def _heads(model: PreparedModel, value: Any) -> dict[AttentionHead, AttentionHead]:
    """Return the heads that output_attentions asks for, counted from 0, by the pairs (layer, head) of the caller."""
    if model.encoder_config is None and value is not None and value is not False:
        raise InputError("this model has no encoder and so no cross-attention; leave output_attentions out")
    return read_attention_heads("output_attentions", value, model.config.num_layers, model.config.num_heads)


def prepare_one(model: GeneratingModel, called: str, source: Any, prompt: Any, options: GenerateOptions,
                stop: Stop = NEVER, *, several: bool = False) -> PreparedWorks:
    """Return the call for one text, or for the ids of one, of which somebody reads the tokens one by one.

    called: the method of the user. prompt: what the text begins with, of a model with an encoder. several: whether the
    text may have several results. Raises `InputError`.
    """
    if isinstance(source, (list, tuple)) and source and all(isinstance(part, str) for part in source):
        raise InputError(f"{called} takes one text, not {len(source)} in a list; call {called}(text) for each, as "
                         "many at once as you like, or results(texts), which yields the whole result of each text")
    config = model.prepared.settings_of_call(options.settings)
    if config.num_return_sequences > 1 and not several:
        raise InputError(f"{called} gives one result; leave out num_return_sequences")
    options = replace(options, prompts=None if prompt is None else [prompt])
    return _requests(model.prepared, [source], options, config, stop, None)


GENERATE = DecoderMethod("generate", GenerateOptions, lambda model: model.prepared, _prepare)
