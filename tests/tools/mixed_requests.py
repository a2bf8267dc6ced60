"""Send requests of all kinds to one queue at random moments, and compare each result with the request alone."""

import random
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from engine import Generator
from engine.base.errors import Cancelled, TimedOut
from engine.generation.checks import checked
from engine.generation.prefixes import BLOCK, cells_of
from engine.generation.results import Request
from engine.generation.schedule import Budget
from engine.generation.scoring import LastLogits, Scoring
from engine.model.generation_config import GenerationConfig

from .step_queues import generate, last_logits, queue_of, submit
from .step_queues import score as score_alone

_OPTIONS: tuple[dict[str, Any], ...] = (
    {}, {"repetition_penalty": 1.3}, {"no_repeat_ngram_size": 2, "suppress_tokens": [5]},
    {"encoder_no_repeat_ngram_size": 2}, {"num_beams": 2, "encoder_no_repeat_ngram_size": 1},
    {"num_beams": 3}, {"num_beams": 3, "num_return_sequences": 2, "length_penalty": 0.3},
    {"num_beams": 2, "renormalize_logits": True, "bad_words_ids": [[4], [5, 6]]},
    {"do_sample": True, "num_return_sequences": 2}, {"do_sample": True, "seed": 8, "temperature": 1.7, "top_p": 0.8},
    {"presence_penalty": 0.9, "frequency_penalty": 0.4, "logit_bias": {6: 2.0}},
    {"num_beams": 2, "frequency_penalty": -0.3, "eos_token_id": (3,), "ignore_eos": True},
    {"do_sample": True, "top_k": 0, "min_p": 0.05}, {"do_sample": True, "top_k": 7, "repetition_penalty": 0.8},
)  # fmt: skip
RANKED = [4, 7]
"""The ids whose last logits a request for ranks wants."""


def configs_of(base: GenerationConfig) -> list[GenerationConfig]:
    """Return settings of all kinds: greedy, beams, samples and penalties, and one with more new tokens."""
    longer = {"max_new_tokens": (base.max_new_tokens or 9) + 11}
    return [base.changed(**options) for options in (*_OPTIONS, longer)]


def check_mixed_requests(generator: Generator, single: Generator, rng: random.Random, count: int,
                         configs: Sequence[GenerationConfig], *, tokens: range, longest: int = 60,
                         budget: Budget | None = None) -> None:
    """Send requests to one queue while it steps, and assert that each result has the bits of the request alone.

    Some are cancelled, some have a deadline that comes early, and some have to give way in a cache that has room for
    one to four times the largest of them. single: what computes each alone; it may be `generator` if that keeps no
    tokens, which would be in the cache, too. tokens: the ids of texts. longest: the most tokens of a prompt.
    """
    stepper, own = generator._model.queue._stepper, single._model.queue
    common = _ids(rng, tokens, longest)
    drawn = [_drawn(rng, generator, configs, tokens, longest, common) for _ in range(count)]
    works = [_work(stepper, kind, what) for kind, what in drawn]
    needs = [checked(stepper, work, own.budget) if isinstance(work, Request) else work for work in works]
    bound = int(rng.uniform(1, 4) * max(cells_of(work.cached) for work in needs)) * BLOCK
    queue = queue_of(stepper, rng, budget, cache_tokens=bound, keep_tokens=rng.choice([0, bound]))
    kept: list[tuple[Any, str, Any]] = []
    left: list[Any] = []
    for work, (kind, what) in zip(works, drawn, strict=True):
        deadline = rng.choice([None, None, time.monotonic() + 1e5, time.monotonic() + rng.uniform(0.01, 0.1)])
        handle = submit(queue, work, rng.randrange(2), rng.choice("abc"), deadline, key=rng.choice("xy"))
        if rng.random() < 0.2:
            left.append(handle)
        else:
            kept.append((handle, kind, what))
        for _ in range(rng.randrange(3)):
            queue.step()
            assert stepper.held <= bound
            may = [sequence for sequence in queue._entered if not sequence.work.reserves]
            if may and rng.random() < 0.1:
                queue._give_way(rng.choice(may))
        if left and rng.random() < 0.3:
            left.pop().cancel()
    while queue.step():
        assert stepper.held <= bound
    compared = []
    for handle, kind, what in kept:
        if handle.error is not None:
            assert isinstance(handle.error, TimedOut)
            continue
        found = handle.result()
        alone = _alone(own, kind, what)
        assert (found.tolist() if kind == "rank" else found) == alone
        compared.append((kind, what, alone))
    assert len(compared) >= count // 4
    # Once more, for an index that knows all prompts.
    warm = [(submit(queue, _work(stepper, kind, what), key=rng.choice("xy")), kind, alone)
            for kind, what, alone in compared[: count // 2]]
    while queue.step():
        assert stepper.held <= bound
    for handle, kind, alone in warm:
        found = handle.result()
        assert (found.tolist() if kind == "rank" else found) == alone
    for handle in left:
        assert handle.error is None or isinstance(handle.error, Cancelled | TimedOut)
    queue.prefixes.let_go(queue.prefixes.kept)
    assert stepper.held == 0


def _ids(rng: random.Random, tokens: range, most: int) -> list[int]:
    return [rng.choice(tokens) for _ in range(rng.randint(1, most))]


def _drawn(rng: random.Random, generator: Generator, configs: Sequence[GenerationConfig], tokens: range, longest: int,
           common: list[int]) -> tuple[str, Any]:
    """Return a request of some kind. common: what prompts begin with, as far as they begin alike."""
    reads = generator.encoder_config is not None
    most = rng.choice([60, 60, 60, longest])
    source, prompt = _ids(rng, tokens, 40) if reads else None, _ids(rng, tokens, 3 if reads else min(most, longest))
    if not reads:
        prompt = [*common[: rng.choice([0, rng.randrange(longest)])], *prompt][: min(most, longest)]
    request = Request(source, prompt, rng.choice(configs))
    kind = rng.choice(["generate", "generate", "generate", "score", "generate" if reads else "rank"])
    if kind == "score":
        return kind, (request, _ids(rng, tokens, 15))
    if kind == "rank":
        return kind, [np.array(prompt + _ids(rng, tokens, 9)) for _ in range(rng.randint(1, 4))]
    return kind, request


def _work(stepper: Any, kind: str, what: Any) -> Any:
    if kind == "generate":
        return what
    return Scoring(stepper, *what) if kind == "score" else LastLogits(what, RANKED)


def _alone(queue: Any, kind: str, what: Any) -> Any:
    """Return the result of a request in a call of its own."""
    if kind == "score":
        return score_alone(queue, [what[0]], [what[1]])[0]
    return last_logits(queue, [what], RANKED)[0].tolist() if kind == "rank" else generate(queue, [what])[0]
