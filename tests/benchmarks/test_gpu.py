"""Test the report of `python -m asv_bench.gpu`, and its message without a GPU. Needs no CUDA package."""

import json
import sys

import pytest

from asv_bench.gpu import cases, isolate, report
from asv_bench.gpu.__main__ import main, measure
from asv_bench.gpu.timing import Clock, take_turns, timed
from engine.backends import numba_cuda


def test_without_a_gpu(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(numba_cuda, "_there", lambda name: False)
    monkeypatch.setattr(sys, "argv", ["gpu", "--out", str(tmp_path / "gpu.json")])
    assert main() == 1
    assert "python -m asv_bench.gpu needs a GPU: cannot run cuda: numba_cuda" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_cases():
    """The operations follow the formulas, and every case occurs once."""
    assert cases.Attention(T=512, d=64).flops == 4 * 32 * 32 * 512 * 512 * 64
    assert cases.Linear(2, 3, 5, "bias").flops == 60
    for todo in (cases.ATTENTION, cases.LINEAR, cases.ENCODER):
        assert len({str(case) for case in todo}) == len(todo)
    assert {(case.T, case.B) for case in cases.ENCODER} == {(T, B) for T in (128, 512) for B in (1, 8, 32, 128, 512)}
    assert {case.model for case in cases.ENCODER} == set(cases.MODELS)


def test_turns():
    """Contenders run equally often, in an order that rotates; a failure is reported, and the others continue."""
    order = []

    def contender(name):
        def run(calls):
            order.append(name)
            return calls * {"a": 0.03, "b": 0.06}[name]

        return run

    def fails(calls):
        raise ValueError("no such shape")

    cells = take_turns({"a": contender("a"), "c": fails, "b": contender("b")})
    assert cells == {"a": {"median": pytest.approx(0.03), "minimum": pytest.approx(0.03)},
                     "c": {"why": "ValueError: no such shape"},
                     "b": {"median": pytest.approx(0.06), "minimum": pytest.approx(0.06)}}
    assert list(cells) == ["a", "c", "b"]
    assert order[4:] == ["a", "b", "b", "a"] * 2 + ["a", "b"]


def test_timed_waits_before_and_after():
    log = []
    assert timed(lambda: log.append("work"), lambda: log.append("wait"))(2) >= 0
    assert log == ["wait", "work", "work", "wait"]


def test_measure_leaves_out_what_there_is_no_time_for():
    case, left_out = cases.Encoder("MiniLM", 8, 128), []
    assert measure([case], {}, Clock(0), left_out) == []
    assert left_out == ["MiniLM 8x128"]


def test_measure():
    def broken(case):
        raise MemoryError("of the GPU")

    case = cases.Encoder("MiniLM", 8, 128)
    makers = {"engine": lambda case: {"engine": lambda calls: calls * 0.5}, "torch": broken}
    row, = measure([case], makers, Clock(100), [])
    assert row == {"case": "MiniLM 8x128", "work": 8, "cells": {
        "torch": {"why": "MemoryError: of the GPU"}, "engine": {"median": 0.5, "minimum": 0.5}}}


NUMBERS = {
    "machine": {"GPU": "none"},
    "checks": {"rows": [{"name": "good", "bound": 1e-3, "error": 1e-4, "ok": True},
                        {"name": "bad", "bound": 1e-3, "error": 1e-2, "ok": False},
                        {"name": "broken", "bound": 1e-3, "ok": False, "why": "hung"}]},
    "sanitizer": {"racecheck rows": "clean"},
    "encoder": [{"case": "MiniLM 8x128", "work": 8, "cells": {
        "engine": {"median": 0.5, "minimum": 0.4}, "torch eager": {"median": 1.0, "minimum": 0.8},
        "torch compiled": {"why": "no | compiler\nhere"}}}],
    "left_out": ["MiniLM 512x512"],
}


def test_text():
    lines = report.text(NUMBERS).splitlines()
    assert "- rows: 1 of 3" in lines
    assert "  - WRONG: bad: error 1.00e-02, above 1e-03" in lines
    assert "  - WRONG: broken: hung" in lines
    assert "- racecheck rows: clean" in lines
    assert "| | engine | torch eager | torch compiled |" in lines
    assert "| MiniLM 8x128 | **16.0** (20.0) | 8.0 (10.0) | no \\| compiler |" in lines
    assert lines[-1] == "Left out, as time ran out: MiniLM 512x512"


def test_the_file_is_replaced_when_it_is_whole(tmp_path):
    path = tmp_path / "new" / "gpu.json"
    report.write(NUMBERS, path)
    with pytest.raises(ValueError, match="JSON compliant"):
        report.write({"error": float("nan")}, path)
    assert json.loads(path.read_text()) == NUMBERS
    assert list(path.parent.iterdir()) == [path]


def python(code):
    return lambda command, seconds: original([sys.executable, "-c", code], seconds)


original = isolate._run


def test_a_group_is_read_from_its_process(monkeypatch):
    monkeypatch.setattr(isolate, "_run", python("""print('a warning'); print('[{"name": "x"}]')"""))
    assert isolate.run_group("rows", 60) == [{"name": "x"}]


@pytest.mark.parametrize(("code", "seconds", "why"), [
    ("import time; time.sleep(60)", 0.2, "not done after 0 s"),
    ("import os; os.abort()", 60, "ended with status -6: no message"),
    ("raise ValueError('bad')", 60, "ended with status 1: ValueError: bad")])
def test_a_process_that_ends_badly_is_told(monkeypatch, code, seconds, why):
    monkeypatch.setattr(isolate, "_run", python(code))
    [row] = isolate.run_group("rows", seconds)
    trace = row.pop("trace")
    assert row == {"name": "rows", "ok": False, "why": why}
    assert ("Traceback" in trace) == ("bad" in code)
    assert isolate.sanitize("sanitizer", "memcheck", "rows", seconds) == why


def test_every_group_is_checked_and_sanitized(monkeypatch):
    monkeypatch.setattr(isolate, "_run", python("print('[]')"))
    monkeypatch.setattr(isolate, "sanitizer", lambda: "sanitizer")
    verdicts = {f"{tool} {group}": "clean" for tool in isolate.TOOLS for group in ("rows", "model")}
    assert isolate.run_all(["rows", "model"], 60) == ({"rows": [], "model": []}, verdicts)
    monkeypatch.setattr(isolate, "sanitizer", lambda: None)
    assert isolate.run_all(["rows"], 60) == ({"rows": []}, {"compute-sanitizer": "not installed"})


def test_what_the_sanitizer_finds(monkeypatch):
    monkeypatch.setattr(isolate, "_run", python("print('========= a race'); print('chatter'); exit(86)"))
    assert isolate.sanitize("sanitizer", "racecheck", "rows", 60) == "found: ========= a race"
    monkeypatch.setattr(isolate, "_run", python("print('[]')"))
    assert isolate.sanitize("sanitizer", "racecheck", "rows", 60) == "clean"
