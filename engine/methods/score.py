"""`Generator.score`: the log probabilities of given tokens under the model itself, which no setting changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from ..base.arguments import flag
from ..base.errors import InputError, located
from ..base.options import Options, option
from ..base.stop import NEVER, Stop
from ..generation.calls import run
from ..generation.prepared import PreparedModel
from ..generation.results import Request, Scored
from ..generation.scoring import Seen
from ..model.generation_config import ids_array
from ..text.sentences import check_text
from .decoding import DecoderMethod, GeneratingModel, PreparedWorks
from .inputs import check_no_prompts, list_of_items, place_of, read_ids, read_requests


@dataclass(frozen=True, kw_only=True)
class ScoreOptions(Options):
    """The options of `Generator.score` that say what is computed."""

    prompts: Any = None
    add_special_tokens: bool = option(True, flag)
    cache_key: str = option("", check_text)


def _prepare(model: GeneratingModel, arguments: tuple[Any, Any], options: ScoreOptions, stop: Stop = NEVER,
             places: Sequence[str] | None = None) -> PreparedWorks:
    """Return the call. arguments: `inputs` and `targets` of `Generator.score`; targets None scores the inputs."""
    inputs, targets = arguments
    prepared, special, single = model.prepared, options.add_special_tokens, isinstance(inputs, str)
    if targets is None:
        if prepared.encoder_config is not None:
            raise InputError("a model with an encoder scores targets: score(inputs, targets)")
        check_no_prompts(prepared, options.prompts)
        requests, wanted = own_tokens(prepared, inputs, stop, special=special, places=places,
                                      cache_key=options.cache_key)
    else:
        requests = read_requests(prepared, inputs, options.prompts, prepared.generation, stop, places=places,
                                 special=special, cache_key=options.cache_key)
        items = [targets] if single else list_of_items("targets", targets)
        if len(items) != len(requests):
            raise InputError(f"there are {len(requests)} inputs and {len(items)} targets; each input needs one")
        wanted = []
        for i, item in enumerate(items):
            with located(place_of(i, places)):
                ids = read_ids(prepared, prepared.text, item, "a target", prepared.lengths.target, special, stop)
                wanted.append(ids.tolist())
    calibration = model.calibrations.get("score")
    temperature = 1.0 if calibration is None else calibration.temperature
    works = []
    for i, (request, tokens) in enumerate(zip(requests, wanted, strict=True)):
        with located(place_of(i, places)):
            works.append(prepared.scoring(request, tokens, temperature=temperature))
    return PreparedWorks(prepared.queue, works, lambda i, scores: Scored(np.array(scores, np.float32)),
                         partial(place_of, places=places), single=single)


def own_tokens(model: PreparedModel, inputs: Any, stop: Stop = NEVER, *, special: bool = True,
               places: Sequence[str] | None = None, cache_key: str = "") -> tuple[list[Request], list[list[int]]]:
    """Return (a request for each input with its first token as the prompt, the other tokens of each input).

    special: whether a text gets the tokenizer's special tokens. places: the names of the inputs in messages.
    """
    prompted = read_requests(model, inputs, prompts=None, config=model.generation, stop=stop, places=places,
                             special=special, bound=model.lengths.scored, cache_key=cache_key)
    tokens = [ids_array("an input", request.prompt).tolist() for request in prompted]
    requests = [replace(request, prompt=ids[:1]) for request, ids in zip(prompted, tokens, strict=True)]
    return requests, [ids[1:] for ids in tokens]


def show_logits(model: PreparedModel, request: Request, tokens: Sequence[int], seen: Seen, place: str,
                stop: Stop = NEVER) -> None:
    """Call `seen` with the logits of the model itself at the places of `tokens`, which follow the prompt of a request.

    place: the name of the request in messages.
    """
    with located(place):
        work = model.scoring(request, tokens, seen=seen)
    run(model.queue, [work], stop, lambda i: place)


SCORE = DecoderMethod("score", ScoreOptions, lambda model: model.prepared, _prepare)
