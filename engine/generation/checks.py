"""Check a request to generate, once, and make the `Generation` that enters the queue; `PreparedModel` calls this."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..base.errors import InputError, UnsupportedError, shown
from ..model.generation_config import GenerationConfig
from ..text.incremental import IncrementalText
from .beams import BeamGroup
from .encoder_decoder import KeptSource, SourceStepper
from .greedy import SingleGroup
from .groups import Generation
from .processors import Rules, rules_of
from .results import Request, decoder_ids
from .schedule import Budget

if TYPE_CHECKING:
    from .lengths import Lengths

MOST_ROWS = 1024
"""The most beams or samples of one request, unless `Budget.rows` is larger: they are set up before the first step."""


def checked(stepper: SourceStepper, request: Request, budget: Budget, lengths: Lengths | None = None,
            kept: KeptSource | None = None, new_text: Callable[[], IncrementalText] | None = None,
            rules: Rules | None = None) -> Generation:
    """Return the `Generation` of a request; raises an `EngineError` for a request that the model cannot compute.

    lengths: the bounds of a model that is ready to run; None for those of the stepper alone. kept: the source that the
    request reads in place of its own, whose ids then only identify it. new_text: returns a text without tokens yet;
    None for a model without a tokenizer, whose requests can have no stop texts. rules: those of its settings, from
    `checked_rules`; None to check the settings here.
    """
    if not isinstance(request, Request):
        raise InputError(f"requests must be Request objects, not {shown(request)}")
    config, rules = request.config, checked_rules(stepper, request.config) if rules is None else rules
    if config.stop_strings and new_text is None:
        raise UnsupportedError("stop_strings are texts, but this model came without a tokenizer; give eos_token_id")
    source, prompt = decoder_ids(request)
    if config.echo and source is not None:
        raise InputError("echo=True puts the prompt in front of the result, but this model reads its input in an "
                         "encoder; leave echo out")
    if lengths is not None:
        lengths.check(source, prompt, config)
    limit = config.limit(len(prompt), stepper.longest, "" if lengths is None else lengths.advice)
    rows = config.num_return_sequences if config.do_sample else config.num_beams        # of one step
    if rows > (most := max(budget.rows, MOST_ROWS)):
        raise InputError(f"a request may have {most:,} beams or samples, not {rows:,}; load the model with a "
                         "larger max_rows for more")
    packed, uniforms = kept or stepper.packed(source), _uniforms(request.uniforms, rows)
    make = BeamGroup if config.num_beams > 1 else SingleGroup
    return Generation(request, source, packed, prompt, limit, rules, make, uniforms=uniforms, exp=stepper.exp,
                      new_text=new_text)


def checked_rules(stepper: SourceStepper, config: GenerationConfig) -> Rules:
    """Return the rules of settings; raises an `EngineError` if they do not fit together, or do not fit the model."""
    config.check_together(stepper.vocab_size)
    return rules_of(config, stepper.vocab_size, stepper.exp)


def _uniforms(uniforms: object, samples: int) -> NDArray[np.float64] | None:
    """Return the random numbers of a request, checked: float64 [samples, n] in [0, 1); None if it has none."""
    if uniforms is None:
        return None
    try:
        array = np.asarray(uniforms, np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"uniforms must be numbers, a row for each sample: {error}") from error
    if array.ndim != 2 or len(array) != samples or not ((array >= 0) & (array < 1)).all():
        raise InputError(f"uniforms must be {samples} rows of numbers in [0, 1), not {shown(uniforms)}")
    return array
