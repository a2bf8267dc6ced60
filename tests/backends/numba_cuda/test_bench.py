"""Run the checks of the GPU benchmark on the emulated device."""

import numpy as np
import pytest

from asv_bench.gpu import cases, checks, ours
from asv_bench.gpu import check as one_check

from ...tools.emulated_device import EmulatedDevice


@pytest.mark.parametrize("check", [
    pytest.param(check, id=f"{group}: {check.name}") for group, make in checks.GROUPS.items() for check in make(True)
    if group != "other encoders of the families"])      # which are checked as the first ones are
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


@pytest.mark.parametrize(("contenders", "case"), [
    *((ours.rows, cases.Rows(kind, 9, 64)) for kind in ("norm", "embedding", "heads")),
    (lambda device, case: ours.window(device, True, case), cases.Window(70, 64, tokens=70, width=64, side=5)),
    (lambda device, case: ours.attention(device, True, case), cases.Attention(9, 64, tokens=9, width=64)),
    (ours.call, cases.Call(9, 64, tokens=9, width=64, causal=True)),
    (lambda device, case: ours.linear_maps(device, True, case), cases.Linear(9, 16, 16, "residual")),
], ids=lambda one: str(one) if isinstance(one, cases.Attention | cases.Rows | cases.Linear) else "")
def test_what_is_timed_runs(contenders, case, monkeypatch):
    monkeypatch.setattr(ours, "REPEATS", 1)
    for name, run in contenders(EmulatedDevice((9, 0)), case).items():
        assert run(1) > 0, name


def test_every_group_has_small_checks():
    for make in checks.GROUPS.values():
        whole, tiny = ([check.name for check in make(size)] for size in (False, True))
        assert 0 < len(tiny) <= len(whole) == len(set(whole))
