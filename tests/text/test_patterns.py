"""A regular expression that reads a text again and again ends with a timeout and Ctrl-C, and changes no result."""

import json
import signal
from typing import Any

import numpy as np
import pytest

from engine.base.errors import UnsupportedError, WeightsError
from engine.model.text_config import TextConfig
from engine.text.patterns import _PUBLISHED, MAX_ADDED_BESIDE_PATTERN, may_backtrack
from engine.text.safety import check_tokenizer
from engine.text.tokenizer import Tokenizer

from ..tools.encoders import engine_of
from ..tools.limited import outcome
from ..tools.tiny_models import random_model
from ..tools.tiny_text import tiny_text

tokenizers = pytest.importorskip("tokenizers")

GOES_BACK = r"a+a+b"
"""It takes the third power of the number of letters: minutes for 5,000 of them."""


def text_with(pattern: str, **changes: Any) -> TextConfig:
    document = json.loads(tiny_text().tokenizer_json) | changes
    step = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    document["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [step, document["pre_tokenizer"]]}
    return TextConfig(json.dumps(document).encode())


@pytest.mark.parametrize("threads", [1, 2])
def test_a_timeout_ends_a_pattern_that_backtracks(threads):
    engine = engine_of(random_model(text_with(GOES_BACK)), threads=threads, backend="reference")
    calls = {
        "encode": lambda: engine.encode(["a" * 5000], timeout=0.1),
        "long": lambda: engine.encode(["a" * 5000] * 3, timeout=0.1),
        "look": lambda: engine.look("a" * 5000, timeout=0.1),
    }
    for call in calls.values():
        assert outcome(call).startswith("EngineError: the call did not finish within its timeout")


def test_ctrl_c_ends_a_pattern_that_backtracks():
    tokenizer = Tokenizer(text_with(GOES_BACK), None, 1)

    def interrupted(call):
        def interrupt(*_):
            raise KeyboardInterrupt

        signal.signal(signal.SIGALRM, interrupt)
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        call()

    for call in (lambda: tokenizer(["a" * 5000]), lambda: tokenizer.encode("a" * 5000, add_special_tokens=False),
                 lambda: tokenizer.places(["a" * 5000]), lambda: tokenizer.windows(["a" * 5000], 0, 20)):
        assert outcome(interrupted, call).startswith("KeyboardInterrupt")


def test_what_runs_beside_a_call_gives_the_same_tokens():
    plain, other = Tokenizer(tiny_text(), 12, 2), Tokenizer(text_with(r"(cat)+x|(?!)"), 12, 2)
    assert other._backtracks
    assert not plain._backtracks
    texts = ["the cat", "", "a b " * 30, "Äé 中!", ("the cat", "a b"), ("a " * 40, "b " * 30)]
    for mine, right in zip(other(texts).input_ids, plain(texts).input_ids, strict=True):
        np.testing.assert_array_equal(mine, right)
    singles = [text for text in texts if isinstance(text, str)]
    assert [vars_of(one) for one in other.places(singles)] == [vars_of(one) for one in plain.places(singles)]
    found, right = other.windows(singles[:3], 2), plain.windows(singles[:3], 2)
    assert [[vars_of(one) for one in own] for own in found] == [[vars_of(one) for one in own] for own in right]


def vars_of(places) -> dict[str, Any]:
    return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in vars(places).items()}


@pytest.mark.parametrize("pattern", [
    " {2,}", r"\s+", r"^\s*", r" ?\p{L}+", "a?b?c?d+", r"'s|'t|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+", "x", "", r"\d{1,3}",
    *sorted(_PUBLISHED)])
def test_patterns_that_certainly_read_a_text_once(pattern):
    assert not may_backtrack(pattern)


@pytest.mark.parametrize("pattern", [
    GOES_BACK, "(a+)+b", "(a|a)*b", "a*b", "a+?b", "(?=a+b)a", r"[[a-z]&&[^b]]+b", r"a+\p{L}", "a+$", "a{2,}b", "a+a+",
    r"\s+(?!\S)", "a{1,99999}", "a?a?a?a?b", r"[a-c]?\w?.?x?y+"])
def test_patterns_that_may_go_back(pattern):
    assert may_backtrack(pattern)


def test_a_pattern_that_nothing_can_wait_for_is_refused():
    document = json.loads(tiny_text().tokenizer_json)
    step = {"type": "Replace", "pattern": {"Regex": GOES_BACK}, "content": "c"}
    with pytest.raises(UnsupportedError, match=r"decoder .* regular expression 'a\+a\+b', which may take minutes"):
        check_tokenizer(json.dumps(document | {"decoder": step}).encode())
    long = document["added_tokens"][0] | {"id": 30, "content": "a" * (MAX_ADDED_BESIDE_PATTERN + 1)}
    document |= {"normalizer": step, "added_tokens": [*document["added_tokens"], long]}
    with pytest.raises(WeightsError, match=r"an added token .* has 257 characters; beside the normalizer"):
        check_tokenizer(json.dumps(document).encode())
