"""Equal tokens and scores as transformers, for the table model. tests/golden/make/generation.py wrote the file."""

import json

import numpy as np
import pytest

from engine.backends.choice import keep_words
from engine.backends.wants import Draw
from engine.generation.results import Request
from engine.generation.schedule import Budget
from engine.model.generation_config import GenerationConfig

from ..golden.table_model import table_logits
from ..tools.paths import DECODERS
from ..tools.step_queues import generate
from .table_stepper import TableStepper

GOLDEN = json.loads((DECODERS / "generation.json").read_text(encoding="utf-8"))
NAMES = [f"{i}: {json.dumps(case['config'])[1:60]}" for i, case in enumerate(GOLDEN["cases"])]


def requests_of(case, config):
    uniforms = case["uniforms"] or [None] * len(case["prompts"])
    return [Request(None, prompt, config, u) for prompt, u in zip(case["prompts"], uniforms, strict=True)]


@pytest.mark.parametrize("case", GOLDEN["cases"], ids=NAMES)
def test_tokens_and_scores(case):
    config = GenerationConfig(**case["config"])
    stepper = TableStepper(case["vocab_size"], case["bias"])
    found = generate(stepper, requests_of(case, config), budget=Budget(rows=9))
    stepper.assert_clean()
    for prompt, results, expected in zip(case["prompts"], found, case["results"], strict=True):
        assert len(results) == len(expected)
        for result, golden in zip(results, expected, strict=True):
            ids = golden["ids"]
            assert result.ended == (ids[-1] in config.eos_token_id)
            forced = len(prompt) == 1 and config.forced_bos_token_id is not None
            assert result.ids == ids[forced : len(ids) - result.ended]
            assert result.score == pytest.approx(golden["score"], abs=1e-4)


def test_the_golden_cases_say_something():
    """Results end by a token and by length, beams differ from greedy search, and samples from both."""
    results = [r for case in GOLDEN["cases"] for of_prompt in case["results"] for r in of_prompt]
    ended = sum(r["ids"][-1] in (2, 5, 6) for r in results)
    assert 0.2 * len(results) < ended < 0.95 * len(results)
    firsts = [tuple(tuple(r[0]["ids"]) for r in case["results"]) for case in GOLDEN["cases"]]
    assert len(set(firsts)) > 0.6 * len(firsts)


@pytest.mark.parametrize("golden", GOLDEN["filters"], ids=lambda g: f"{g['config']} of {g['vocab_size']}")
def test_filtered_probabilities(golden):
    draw, V = Draw(**golden["config"]), golden["vocab_size"]
    ids, y = keep_words(table_logits(golden["prompt"], V, {}), draw)
    p, found = np.exp(y - y.max()), np.zeros(V)
    found[ids] = p / p.sum()
    assert found == pytest.approx(np.array(golden["probabilities"]), abs=1e-6)
