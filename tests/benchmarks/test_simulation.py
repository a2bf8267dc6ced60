"""Test the simulation of many cores: time, shared wires, caches, and that the schedules do all work exactly once."""

import json
import re
import sys
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.model.precision import ROUNDED

from ..tools.paths import ROOT

isa = pytest.importorskip("engine.backends.cython_cpu.isa", reason="the compiled kernels are not built")

sys.path.insert(0, str(ROOT / "asv_bench"))
try:
    from benchmarks.models import CONFIGS
    from simulation import calibrate, compare, report
    from simulation.__main__ import lengths_of, main
    from simulation.caches import Caches, nothing_moved
    from simulation.events import Barrier, Item, fair_share, simulate
    from simulation.hardware import MACHINES, Hardware, Rates, load
    from simulation.program import listing
    from simulation.threads import PIECES, Rule, forward
finally:
    sys.path.remove(str(ROOT / "asv_bench"))

FREE = Hardware(1, barrier_seconds=0.0, signal_seconds=0.0, wake_seconds=0.0, domain_bandwidth=np.inf,
                memory_bandwidth=np.inf, link_bandwidth=np.inf)  # fmt: skip
"""A machine on which only the kernels take time."""


def even_rates(precision="float32"):
    """Return rates in proportion to the work: any division of it takes the same time in all."""
    panels = [{"K": 1, "kind": kind, "rows": [4096], "seconds": [4e-6]} for kind in calibrate.KINDS]
    measured = {
        "converts": precision == "int8", "weight_bytes": 4, "panels": panels,
        "attention": [{"d": 1, "T": [1], "seconds": [1e-9]}], "byte": {"rows": [1], "seconds": [0.0]},
        "numbers": dict.fromkeys(("NORM", "EMBED", "STORE", "CONVERT"), 1e-12),
    }  # fmt: skip
    return Rates({"VL": 16, "NR": 64, "precisions": {precision: measured}}, precision)


@given(asked=st.lists(st.floats(0.0, 100.0), min_size=1, max_size=9), part=st.floats(0.01, 0.99))
def test_a_fair_share_uses_the_whole_wire(asked, part):
    capacity = part * sum(asked)
    if capacity > 1e-3:
        share = fair_share(np.array(asked), capacity)
        assert np.minimum(asked, share).sum() == pytest.approx(capacity)


def test_items_share_a_wire_while_both_run():
    wire = ("memory", 0)
    # Both ask for 10 bytes a second and get 5: the short one ends after 2 seconds, the other has 1 second left.
    run = simulate([iter([Item(1.0, {wire: 10.0})]), iter([Item(2.0, {wire: 20.0})])], {wire: 10.0})
    assert run.seconds == pytest.approx(3.0)
    assert run.short == pytest.approx(2.0)
    assert run.moved == {wire: 30.0}


def test_threads_wait_for_the_last_at_a_barrier():
    barrier = Barrier(2, 0.5)
    run = simulate([iter([Item(1.0), barrier, Item(1.0)]), iter([Item(3.0), barrier])], {})
    assert run.seconds == pytest.approx(4.5)
    assert run.waited == pytest.approx(2 * 4.5 - 5.0)


def test_a_cache_forgets_what_was_used_longest_ago():
    caches, moved = Caches(replace(FREE, domain_bytes=250)), nothing_moved()
    waits = [caches.weights(0, key, 0, 100, moved) for key in "aabacb"]
    assert waits == [100, 0, 100, 0, 100, 100]      # c drives out b
    assert moved[("memory", 0)] == 400


def test_rows_that_another_cache_has_changed_come_from_there():
    caches, moved = Caches(replace(FREE, cores=2, domain_cores=1)), nothing_moved()
    caches.rows(0, "x", 100, True, moved)
    assert moved == {}
    assert caches.rows(1, "x", 100, False, moved) == 100
    assert moved == {("domain", 1): 100}
    caches.rows(1, "x", 100, True, moved)
    assert caches.rows(0, "x", 100, False, moved) == 100


@pytest.mark.parametrize(("placement", "memory", "link"), [
    ("first", {0: 400}, 200), ("interleaved", {0: 200, 1: 200}, 200), ("copied", {0: 200, 1: 200}, 0)])
def test_placement_decides_whose_memory_has_the_weights(placement, memory, link):
    caches = Caches(replace(FREE, cores=2, sockets=2, domain_cores=1, placement=placement))
    moved = nothing_moved()
    for core in (0, 1):
        for index in (0, 1):
            caches.weights(core, index, index, 100, moved)
    assert {i: size for (kind, i), size in moved.items() if kind == "memory"} == memory
    assert sum(size for (kind, _), size in moved.items() if kind == "link") == link


@pytest.mark.parametrize(("precision", "barriers"), [("float32", calibrate.BARRIERS_OF_A_LAYER), ("int8", 9)])
def test_instructions_are_the_engines(precision, barriers):
    config = CONFIGS["BERT-base"]
    code = listing(config, even_rates(precision)).code
    maps = [op.map for op in code if op.kind == "MULTIPLY"]
    assert [(m.N, m.K) for m in maps] == [(2304, 768), (768, 768), (3072, 768), (768, 3072)] * config.num_layers
    assert [op.result for op in code if op.map][:4] == ["plain", "residual", "activation", "residual"]
    assert sum(op.kind == "ATTEND" for op in code) == config.num_layers
    assert sum(op.kind == "CONVERT" for op in code) == (48 if precision == "int8" else 0)
    assert sum(op.needs_barrier for op in code) == barriers * config.num_layers


def test_constants_are_those_of_the_schedule():
    source = (ROOT / "engine/backends/cpu/native/machine.pxi").read_text()
    constants = dict(re.findall(r"^    ([A-Z_]+) = (\w+)", source, re.MULTILINE))
    assert int(constants["PIECES"]) == PIECES
    for precision in ROUNDED:
        product = isa.load("baseline").product(precision)
        assert (product.block, product.shared, product.bundle) == (Rule().block, Rule().block, Rule().bundle)


@settings(max_examples=40, deadline=None)
@given(lengths=st.lists(st.integers(1, 300), min_size=1, max_size=20), cores=st.integers(1, 9),
       rule=st.sampled_from([Rule(), Rule(bundle=96), Rule(block=100), Rule(team=2), Rule(queries=16)]))  # fmt: skip
def test_every_schedule_does_all_work_once(lengths, cores, rule):
    rates = even_rates("int8")
    code = listing(replace(CONFIGS["MiniLM"], num_layers=2), rates)
    lengths = [T + -T % 64 for T in lengths]    # whole blocks of queries: other blocks cost as much as whole ones
    alone = forward(code, rates, FREE, lengths)
    run = forward(code, rates, replace(FREE, cores=cores), lengths, rule)
    assert alone.waited == pytest.approx(0.0, abs=1e-12)
    assert cores * run.seconds - run.waited == pytest.approx(alone.seconds)
    assert run.seconds >= alone.seconds / cores * (1 - 1e-9)


def test_cores_that_share_no_cache_need_more_from_memory():
    rates = Rates(load(), "int8")
    code = listing(replace(CONFIGS["BERT-base"], num_layers=2), rates)
    shared, apart = (
        forward(code, rates, replace(MACHINES["epyc"], cores=8, domain_cores=n, domain_bytes=n * 2**22), [128] * 16)
        for n in (8, 1)
    )
    assert apart.moved["memory", 0] > 4 * shared.moved["memory", 0]
    assert apart.seconds > shared.seconds


def test_the_command_prints_a_row_for_each_number_of_cores(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["simulation", "--model", "MiniLM", "--shape", "4x64", "--cores", "1,2"])
    main()
    title, header, one, two = capsys.readouterr().out.splitlines()
    assert title.startswith("Simulation of MiniLM in int8, 4x64, on epyc")
    assert header.split()[0] == "cores"
    assert one.split()[0] == "1"
    assert one.split()[3] == "1.00"
    assert 0.7 < float(two.split()[3]) < 1.1
    assert len(lengths_of("mixed")) == 256


def test_the_comparison_simulates_this_machine():
    one, two = (compare.simulate(load(), "MiniLM", "float32", "8x128", threads) for threads in (1, 2))
    assert 0.45 < two / one < 0.6


class Clock:
    """Runs a call, and says that it took longer than the call before."""

    def __init__(self):
        self.seconds = 0.0

    def __call__(self, call):
        call()
        self.seconds += 1e-6
        return self.seconds


def test_calibration_measures_what_rates_read(monkeypatch):
    small = {"DEPTHS": (256, 1024), "WIDTHS": (16,), "TOKENS": (64, 128), "ROWS": (1, 64), "HEADS": 16, "NEAR": 2**14,
             "FAR": 2**16, "SECONDS": 0.0}  # fmt: skip
    for name, value in small.items():
        monkeypatch.setattr(calibrate, name, value)
    monkeypatch.setattr(calibrate, "usual", Clock())
    product = calibrate.isa.chosen().product("int8")
    kernels = product.kernels
    measured = {"int8": calibrate.measure_kernels(product)}
    rates = Rates({"VL": kernels.VL, "NR": kernels.NR, "precisions": measured}, "int8")
    assert json.loads(calibrate.written({"a": [1.23456e-9, 2], "b": {"c": "d"}})) == {"a": [1.235e-9, 2],
                                                                                  "b": {"c": "d"}}  # fmt: skip
    assert rates.weight_bytes == 1
    assert rates.panel(512, 64, "residual") > rates.panel(512, 1, "residual")
    assert rates.attention(16, 100) > 0
    assert rates.number("CONVERT") > 0
    assert rates.byte(16) >= 0


def test_a_calibration_is_the_middle_of_its_rounds():
    rounds = [{"rows": (1, 2), "seconds": [t, 2 * t], "converts": True} for t in (3e-6, 9e-6, 2e-6)]
    assert calibrate.middle(rounds) == {"rows": [1, 2], "seconds": [3e-6, 6e-6], "converts": True}


def test_the_figure_has_a_line_for_each_shape():
    row = {"efficiency": 0.95, "seconds": 0.0123, "waiting": 0.04, "memory": 47e9}
    lines = {shape: [row] * len(report.CORES) for shape, _ in report.LINES}
    root = ElementTree.fromstring(report.svg(lines))
    assert len(root.findall("{http://www.w3.org/2000/svg}polyline")) == len(report.LINES)
    first = report.markdown(lines).splitlines()[2]
    assert first.startswith("| 1 | 0.95 (12.3 ms, 4%, 47 GB/s) |")
