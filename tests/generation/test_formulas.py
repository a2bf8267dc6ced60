"""New tokens are those that the formulas of vLLM and of transformers choose, in NumPy float64.

    ENGINE_FORMULAS=500 python -m pytest tests/generation/test_formulas.py

Each formula is written after the code of its library: `vllm/v1/sample` and `transformers/generation/logits_process.py`.
"""

import os
import random

import numpy as np
import pytest

from engine import Generator
from engine.generation.calls import run
from engine.generation.sampling import stream_of_numbers
from engine.generation.scoring import AllLogits

from ..tools.generators import language_model

CASES = int(os.environ.get("ENGINE_FORMULAS", "40"))
V = 50
CLOSE = 1e-4
"""Two tokens whose choice is this close may change places between float32 and float64."""


def vllm(logits, prompt, new, s):
    """Return the changed logits, and those that top_k, top_p and min_p leave, as vLLM computes them."""
    counts = np.bincount(new, minlength=V)
    for token, bias in s.get("logit_bias", {}).items():
        logits[token] += bias
    if len(new) < s.get("min_new_tokens", 0):
        logits[s["eos_token_id"]] = -np.inf
    seen = (np.bincount(prompt, minlength=V) > 0) | (counts > 0)
    scale = np.where(seen, s.get("repetition_penalty", 1.0), 1.0)
    logits = np.where(logits > 0, logits / scale, logits * scale)
    logits = logits - s.get("frequency_penalty", 0.0) * counts
    logits = logits - s.get("presence_penalty", 0.0) * (counts > 0)
    if not s.get("do_sample"):
        return logits, logits
    y = logits / s.get("temperature", 1.0)
    p = np.exp(y - y.max())
    y[p < s.get("min_p", 0.0) * p.max()] = -np.inf
    ascending = np.argsort(y, kind="stable")
    ordered, k = y[ascending], s["top_k"]
    if 0 < k < V:
        ordered[ordered < ordered[V - k]] = -np.inf
    p = np.exp(ordered - ordered.max())
    removed = np.cumsum(p / p.sum()) <= 1 - s.get("top_p", 1.0)
    removed[-1] = False
    ordered[removed] = -np.inf
    kept = np.empty(V)
    kept[ascending] = ordered
    return logits, kept


def transformers(logits, prompt, new, s):
    """Return the same as transformers computes it."""
    ids, eos = [*prompt, *new], s["eos_token_id"]
    score = logits[ids]
    p = s.get("repetition_penalty", 1.0)
    logits[ids] = np.where(score < 0, score * p, score / p)
    n = s.get("no_repeat_ngram_size", 0)
    if n and len(ids) + 1 >= n:
        begun = ids[len(ids) + 1 - n :]
        logits[[ids[i + n - 1] for i in range(len(ids) + 1 - n) if ids[i : i + n - 1] == begun]] = -np.inf
    for word in s.get("bad_words_ids", []):
        if word != [eos] and len(word) <= len(ids) + 1 and ids[len(ids) + 1 - len(word) :] == word[:-1]:
            logits[word[-1]] = -np.inf
    if len(ids) < s.get("min_length", 0) or len(new) < s.get("min_new_tokens", 0):
        logits[eos] = -np.inf
    logits[s.get("suppress_tokens", [])] = -np.inf
    if not new:
        logits[s.get("begin_suppress_tokens", [])] = -np.inf
    if not s.get("do_sample"):
        return logits, logits
    y = logits / s.get("temperature", 1.0)
    if s["top_k"]:
        y[y < np.sort(y)[-min(s["top_k"], V)]] = -np.inf
    if s.get("top_p", 1.0) < 1:
        ascending = np.argsort(y, kind="stable")
        p = np.exp(y[ascending] - y.max())
        removed = np.cumsum(p / p.sum()) <= 1 - s["top_p"]
        removed[-1] = False
        y[ascending[removed]] = -np.inf
    if s.get("min_p"):
        p = np.exp(y - y.max())
        y[p / p.sum() < s["min_p"] * (p / p.sum()).max()] = -np.inf
    return logits, y


def drawn(rng, formula):
    """Return random settings of one library."""
    def ids(most):
        return rng.sample(range(V), rng.randint(1, most))

    every = {
        "repetition_penalty": lambda: rng.choice([0.6, 1.1, 1.5, 3.0]), "min_new_tokens": lambda: rng.randint(1, 6),
        **({"presence_penalty": lambda: rng.uniform(-2, 2), "frequency_penalty": lambda: rng.uniform(-2, 2),
            "logit_bias": lambda: {id: rng.uniform(-5, 5) for id in ids(20)}} if formula is vllm else
           {"no_repeat_ngram_size": lambda: rng.randint(1, 3), "suppress_tokens": lambda: ids(10),
            "bad_words_ids": lambda: [ids(3) for _ in range(rng.randint(1, 12))],
            "begin_suppress_tokens": lambda: ids(10), "min_length": lambda: rng.randint(3, 12)})}
    settings = {name: draw() for name, draw in every.items() if rng.random() < 0.4}
    if formula is vllm and "logit_bias" in settings:        # vLLM scales the bias with the logit
        settings.pop("repetition_penalty", None)
    if "min_new_tokens" in settings:        # which transformers lets win
        settings.pop("min_length", None)
    if rng.random() < 0.6:
        settings |= {"do_sample": True, "seed": rng.randrange(99), "top_k": rng.choice([0, 1, 5, 50]),
                     "temperature": rng.choice([0.3, 1.0, 4.0]), "top_p": rng.choice([1.0, 0.9, 0.4]),
                     "min_p": rng.choice([0.0, 0.0, 0.1, 0.5])}
        if formula is vllm and settings["min_p"]:       # vLLM lets top_p count what min_p has left
            settings["top_p"] = 1.0
    return {"eos_token_id": rng.choice([3, 19, 21, 36]), "max_new_tokens": 12, **settings}


def is_close(changed, kept, number, s):
    """Return whether another rounding may choose another token."""
    if not s.get("do_sample"):
        first, second = np.sort(changed)[:-3:-1]
        return first - second < CLOSE
    p = np.exp(kept - kept.max())
    ends = np.cumsum(p / p.sum())
    y = changed / s["temperature"]
    every = np.sort(np.exp(y - y.max()))[::-1]
    sums = np.cumsum(every) / every.sum()
    near = np.abs(ends - number).min() < CLOSE or np.abs(every - s["min_p"]).min() < CLOSE
    if s["top_k"]:
        best = np.sort(y)[::-1]
        near |= s["top_k"] < V and best[s["top_k"] - 1] - best[s["top_k"]] < CLOSE
        sums = np.cumsum(every[: s["top_k"]]) / every[: s["top_k"]].sum()
    return near or np.abs(sums[:-1] - s["top_p"]).min(initial=1) < CLOSE


@pytest.mark.parametrize("formula", [vllm, transformers])
def test_the_tokens_are_those_of_the_formulas(formula):
    rng, generator = random.Random(60), Generator(language_model(), threads=2)
    chosen = skipped = 0
    for _ in range(CASES):
        prompt, s = [rng.randrange(4, V) for _ in range(rng.randint(1, 9))], drawn(rng, formula)
        [result] = generator.generate([prompt], **s)
        [every] = run(generator.prepared.queue, [AllLogits(np.array([*prompt, *result.ids]), V)])
        numbers = stream_of_numbers(s.get("seed", 0), None, np.array(prompt), 0)
        for i, token in enumerate([*result.ids, *[s["eos_token_id"]] * result.ended]):
            logits = every[len(prompt) - 1 + i].astype(np.float64)
            changed, kept = formula(logits, prompt, result.ids[:i], s)
            if s.get("do_sample"):
                number, p = numbers.random(), np.exp(kept - kept.max())
                expected = np.searchsorted(np.cumsum(p), number * p.sum(), side="right")
            else:
                number, expected = 0.0, kept.argmax()
            chosen += 1
            if token != expected:
                assert is_close(changed, kept, number, s), (prompt, s, i)
                skipped += 1
                break
        assert result.finish_reason == ("stop" if result.ended else "length")
    assert chosen > 3 * CASES
    assert skipped <= 1 + CASES // 100
