"""The benchmark that tracks the bits of outputs."""

import sys

from ..tools.paths import ROOT


def test_a_digest_tells_bits_apart(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "asv_bench"))
    from benchmarks.outputs import Outputs

    found = []
    for precision in ("float32", "float32", "int8"):
        outputs = Outputs()
        outputs.setup("distilbert", precision)
        found.append(outputs.track_digest("distilbert", precision))
    for name in [n for n in sys.modules if n.split(".")[0] == "benchmarks"]:
        del sys.modules[name]
    assert found[0] == found[1] != found[2]
    assert int(float(found[0])) == found[0]
