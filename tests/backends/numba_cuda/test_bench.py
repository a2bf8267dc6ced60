"""Run the checks of the GPU benchmark on the emulated device."""

import numpy as np
import pytest

from asv_bench.gpu import checks

from ...tools.emulated_device import EmulatedDevice


def small(group, *names):
    """Return the tiny checks with these names of a group."""
    found = [check for check in checks.GROUPS[group](True) if check.name in names]
    assert len(found) == len(names)
    return found


@pytest.mark.parametrize("check", [
    *small("mma linear", "linear 32x32 gelu"),
    *small("mma attention", "attention d=256, tiles for 64 tokens"),
    *small("float32 linear", "linear residual"),
    *small("rows", "layer_norm", "rms_norm", "embedding", "heads, joint norm", "pooling mean"),
    *small("model", "model bfloat16"),
    *small("wgmma linear", "linear 64x64 residual", "linear 64x64 gate"),
    *small("mma bits", "bits of linear 32x32 residual", "bits of linear 32x32 bias exchanged"),
    *small("wgmma bits", "bits of linear 64x64 residual exchanged"),
], ids=lambda check: check.name)
def test_the_kernels_hold(check):
    row = check.row(EmulatedDevice((9, 0)))
    assert row["ok"], row


@pytest.mark.parametrize(("out", "told"), [
    ([1.0, 2.1], {"error": pytest.approx(0.1 / 5**0.5), "ok": False}),
    ([1.0, 2.0001], {"error": pytest.approx(0.0001 / 5**0.5), "ok": True}),
    ([1.0, np.nan], {"why": "results are not finite", "ok": False})])
def test_a_row(out, told):
    check = checks.Check("x", 1e-3, lambda device: (np.array(out), np.array([1.0, 2.0])))
    assert check.row(EmulatedDevice()) == {"name": "x", "bound": 1e-3} | told


def test_an_error_is_told():
    def fails(device):
        raise RuntimeError("launch failed")

    assert checks.Check("x", 1e-3, fails).row(EmulatedDevice())["why"] == "RuntimeError: launch failed"


def test_every_group_has_small_checks():
    for make in checks.GROUPS.values():
        whole, tiny = ([check.name for check in make(size)] for size in (False, True))
        assert 0 < len(tiny) <= len(whole) == len(set(whole))
