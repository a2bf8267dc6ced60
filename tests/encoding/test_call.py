"""What every method over texts shares: its limit, its deadline, its progress, and its warning about texts that were cut."""

from __future__ import annotations

import pytest

from engine.base.errors import InputError
from engine.base.stop import NEVER
from engine.encoding import PLAIN, Call, calling


def test_results_are_counted_one_by_one():
    done = []
    call = Call(advance=done.append)
    results = call.counted("abc")
    assert next(results) == "a" and done == []
    assert list(results) == ["b", "c"] and done == [1, 1, 1]


def test_a_plain_call_shows_nothing():
    assert list(PLAIN.counted("ab")) == ["a", "b"] and PLAIN.batch_size is None and PLAIN.stop is NEVER


def test_what_a_user_gives_becomes_the_call():
    with calling(["a"], 3, False, True, 60) as call:
        assert call.batch_size == 3 and call.stop.deadline > 0
    with calling(["a"]) as call:
        assert call.batch_size is None and call.stop.deadline == 0


@pytest.mark.parametrize("wrong", [{"batch_size": 0}, {"show_progress_bar": "yes"}, {"truncation": 2}, {"timeout": -1}])
def test_a_wrong_argument_is_named_before_anything_is_computed(wrong):
    with pytest.raises(InputError, match=next(iter(wrong))), calling(["a"], **wrong):
        pytest.fail("the block ran")
