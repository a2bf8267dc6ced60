"""What every method over texts shares: its limit, its deadline, its progress, and its warning of cut texts."""

from __future__ import annotations

import pytest

from engine.base.errors import InputError
from engine.encoding.call import Call


def test_what_a_user_gives_becomes_the_call():
    call = Call.of(3, 60)
    assert (call.batch_size, call.stop.deadline > 0) == (3, True)
    with Call.of().showing(1, False) as call:
        assert (call.batch_size, call.stop.deadline) == (None, 0)


@pytest.mark.parametrize("wrong", [{"batch_size": 0}, {"timeout": -1}, {"show_progress_bar": "yes"}])
def test_a_wrong_argument_is_named(wrong):
    show = wrong.pop("show_progress_bar", None)
    with pytest.raises(InputError, match=next(iter(wrong), "show_progress_bar")):
        Call.of(**wrong).showing(1, show)
