"""Run the checks of the GPU benchmark on the emulated device."""

import numpy as np
import pytest

from asv_bench.gpu import check as one_check
from asv_bench.gpu import checks

from ...tools.emulated_device import EmulatedDevice


@pytest.mark.parametrize("check", [
    pytest.param(check, id=f"{group}: {check.name}") for group, make in checks.GROUPS.items() for check in make(True)])
def test_the_kernels_hold(check):
    row = check.row(EmulatedDevice((9, 0)))
    assert row["ok"], row


@pytest.mark.parametrize(("out", "told"), [
    ([1.0, 2.1], {"error": pytest.approx(0.1 / 5**0.5), "ok": False}),
    ([1.0, 2.0001], {"error": pytest.approx(0.0001 / 5**0.5), "ok": True}),
    ([1.0, np.nan], {"why": "results are not finite", "ok": False})])
def test_a_row(out, told):
    check = one_check.Check("x", 1e-3, lambda device: (np.array(out), np.array([1.0, 2.0])))
    assert check.row(EmulatedDevice()) == {"name": "x", "bound": 1e-3} | told


def test_an_error_is_told():
    def fails(device):
        raise RuntimeError("launch failed")

    assert one_check.Check("x", 1e-3, fails).row(EmulatedDevice())["why"] == "RuntimeError: launch failed"


def test_every_group_has_small_checks():
    for make in checks.GROUPS.values():
        whole, tiny = ([check.name for check in make(size)] for size in (False, True))
        assert 0 < len(tiny) <= len(whole) == len(set(whole))
