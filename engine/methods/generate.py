"""The method behind `Generator.generate`, `results`, `stream` and `Session.submit`: new tokens for texts or ids."""

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
    """Return the call for a text, or for a list of texts or of lists of token ids."""
    return _requests(model.prepared, inputs, options, model.prepared.settings_of_call(options.settings), stop, places)


def _requests(model: PreparedModel, inputs: Any, options: GenerateOptions, config: GenerationConfig, stop: Stop,
              places: Sequence[str] | None) -> PreparedWorks:
    """Return the call with checked settings: a checked work for each input, and a function that makes its results.

    places: the names of the inputs in error messages; None to count them from 0.
    """
    heads_of = _heads(model, options.output_attentions)     # by the pairs of the caller
    heads, samples, works = tuple(dict.fromkeys(heads_of.values())), config.num_return_sequences, []
    for i, request in enumerate(read_requests(model, inputs, options.prompts, config, stop, places=places, heads=heads,
                                              special=options.add_special_tokens, cache_key=options.cache_key)):
        with located(place_of(i, places)):
            works.append(model.checked(request))

    echoes = [work.echo for work in works]      # `finish` must not keep the works, which may hold much memory

    def finish(i: int, results: Sequence[Generated]) -> Any:
        """Return the results of work `i` with their texts, and with the attention weights by the caller's pairs."""
        results = [model.with_text(result, echoes[i]) for result in results]
        if heads_of:
            results = [replace(result, attentions={pair: result.attentions[head] for pair, head in heads_of.items()})
                       for result in results]
        return results if samples > 1 else results[0]

    return PreparedWorks(model.queue, works, finish, partial(place_of, places=places), single=isinstance(inputs, str),
                         samples=samples)


def _heads(model: PreparedModel, value: Any) -> dict[AttentionHead, AttentionHead]:
    """Return, for each pair (layer, head) of the option output_attentions, the head with numbers of at least 0."""
    if model.encoder_config is None and value is not None and value is not False:
        raise InputError("this model has no encoder and so no cross-attention; leave output_attentions out")
    return read_attention_heads("output_attentions", value, model.config.num_layers, model.config.num_heads)


def prepare_one(model: GeneratingModel, called: str, source: Any, prompt: Any, options: GenerateOptions,
                stop: Stop = NEVER, *, several: bool = False) -> PreparedWorks:
    """Return the call for one text or its ids, for a caller that reads the new tokens one by one; raises `InputError`.

    called: the name of the user's method, for messages. prompt: the beginning of the result, for a model with an
    encoder. several: whether the settings may ask for several results.
    """
    if isinstance(source, (list, tuple)) and source and all(isinstance(part, str) for part in source):
        raise InputError(f"{called} takes one text, not {len(source)} in a list; call {called}(text) for each, as "
                         "many at once as you like, or results(texts), which yields the whole result of each text")
    config = model.prepared.settings_of_call(options.settings)
    if config.num_return_sequences > 1 and not several:
        raise InputError(f"{called} gives one result; leave out num_return_sequences")
    options = replace(options, prompts=None if prompt is None else [prompt])
    return _requests(model.prepared, [source], options, config, stop, places=None)


GENERATE = DecoderMethod("generate", GenerateOptions, lambda model: model.prepared, _prepare)
