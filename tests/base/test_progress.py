"""Test what a progress bar says."""

import pytest

from engine.base.progress import progress

pytest.importorskip("tqdm")


@pytest.mark.parametrize(("unit", "promises"), [(" sentences", False), (" tokens", True)])
def test_a_bar_over_texts_of_falling_length_promises_no_time(capsys, unit, promises):
    with progress(10, True, unit=unit) as advance:
        advance(4)
    shown = capsys.readouterr().err
    assert "4/10" in shown
    assert (unit in shown) == ("<" in shown) == promises
