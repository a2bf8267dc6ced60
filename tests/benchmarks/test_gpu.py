"""Test the report of `python -m asv_bench.gpu`, and its message without a GPU. Needs no CUDA package."""

import json
import sys

import pytest

from asv_bench.gpu import cases, goals, isolate, report
from asv_bench.gpu.__main__ import Step, main, measure, numbers, run_steps
from asv_bench.gpu.record import Record, digest_of
from asv_bench.gpu.timing import Clock, take_turns, timed
from engine.backends.numba_cuda import driver, stored


def test_without_a_gpu(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(driver, "_is_installed", lambda name: False)
    monkeypatch.setattr(sys, "argv", ["gpu", "--out", str(tmp_path / "gpu.json")])
    assert main() == 1
    assert "python -m asv_bench.gpu needs a GPU: cannot run cuda: cuda.bindings" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_cases():
    """The operations follow the formulas, and every case occurs once."""
    assert cases.Attention(T=512, d=64).flops == 4 * 32 * 32 * 512 * 512 * 64
    assert cases.Linear(2, 3, 5, "bias").flops == 60
    assert cases.Call(512, 64, causal=True).flops == cases.Attention(512, 64).flops / 2
    assert cases.Rows("norm", 3, 8).bytes == 3 * 8 * (4 + 4 + 2)
    for todo in (cases.ATTENTION, cases.LINEAR, cases.ENCODER + cases.OTHERS, cases.CALLS):
        assert len({str(case) for case in todo}) == len(todo)
    assert {(case.T, case.B) for case in cases.ENCODER} == {(T, B) for T in (128, 512) for B in (1, 8, 32, 128, 512)}
    assert {case.model for case in cases.ENCODER + cases.OTHERS} == set(cases.MODELS)
    timed = [(section, str(case)) for section, todo in cases.FIRST + cases.REST for case in todo]
    assert len(set(timed)) == len(timed)
    assert {str(case) for case in cases.ATTENTION + cases.LINEAR + cases.ENCODER} <= {case for _, case in timed}
    mixed = cases.OTHERS[-1]
    assert str(mixed) == "ModernBERT-base 128x16 to 512"
    assert mixed.lengths == mixed.lengths
    assert 16 <= min(mixed.lengths) < max(mixed.lengths) <= 512


def test_goals():
    """Every goal is one of the cases that are timed first; a ratio is that of the fastest contender."""
    first = {(section, str(case)) for section, todo in cases.FIRST for case in todo}
    assert {(goal.section, goal.case) for goal in goals.GOALS} <= first
    cells = {"engine": {"median": 2.0}, "a": {"median": 3.0}, "b": {"median": 5.0}, "c": {"why": "no memory"}}
    assert goals.Goal("s", "x", 1.0, ("a", "b", "c")).found(cells) == 1.5
    assert goals.Goal("s", "x", 1.0).found(cells) == 0.5
    assert goals.Goal("s", "x", 1.0, ("c",)).found(cells) is None
    rows = {"rows": [{"case": "norm 16384x768", "cells": {"engine": {"median": 5.0}, "copy": {"median": 4.0}}}],
            "encoder": [{"case": "BERT-base 1x128", "cells": {"engine": {"median": 0.001}}}]}
    lines = list(goals.goal_lines(rows))
    assert "| rows norm 16384x768: engine against copy | 0.80 | 0.80 | met |" in lines
    assert "| encoder BERT-base 1x128: engine in runs a second | 1,428.57 | 1,000.00 | MISSED |" in lines
    assert sum("not measured" in line for line in lines) == len(goals.GOALS) - 2


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


def test_measure():
    def broken(case):
        raise MemoryError("of the GPU")

    case = cases.Encoder("MiniLM", 8, 128)
    makers = {"engine": lambda case: {"engine": lambda calls: calls * 0.5}, "torch": broken}
    assert measure(case, makers) == {"case": "MiniLM 8x128", "work": 8, "cells": {
        "torch": {"why": "MemoryError: of the GPU"}, "engine": {"median": 0.5, "minimum": 0.5}}}


@pytest.fixture
def steps():
    """Return three steps, the second of which fails, and the list of those that have run."""
    ran = []

    def step(name, ok=True, modules=("norm",)):
        return Step("checks", name, lambda seconds: ran.append(name) or {"rows": [{"ok": ok}], "ok": ok}, modules)

    return [step("a"), step("b", ok=False), step("c", modules=None)], ran


def opened(tmp_path, gpu="H200"):
    return Record(tmp_path / "gpu.json", {"GPU": gpu})


@pytest.mark.parametrize("at_once", [1, 3])
def test_a_later_run_skips_what_is_there(tmp_path, steps, at_once):
    (tmp_path / "gpu.json").write_text('{"encoder": ["older"]}')
    todo, ran = steps
    done, left_out = run_steps(todo, opened(tmp_path), Clock(100), at_once=at_once)
    assert (sorted(ran), list(done), left_out) == (["a", "b", "c"], todo, [])
    ran.clear()
    again, _ = run_steps(todo, opened(tmp_path), Clock(100), at_once=at_once)
    assert ran == ["b"]             # what failed is tried again
    assert [result["ok"] for result in again.values()] == [True, False, True]
    run_steps(todo, opened(tmp_path), Clock(100), again=True)
    run_steps(todo, opened(tmp_path, gpu="H100"), Clock(100))
    assert len(ran) == 7
    content = json.loads((tmp_path / "gpu.json").read_text())
    assert content["encoder"] == ["older"]
    assert len(content["results"]) == 6


def test_each_result_is_written_at_once(tmp_path, steps):
    def killed(seconds):
        raise KeyboardInterrupt

    todo, ran = steps
    with pytest.raises(KeyboardInterrupt):
        run_steps([todo[0], Step("timed", "d", killed), todo[2]], opened(tmp_path), Clock(100))
    assert ran == ["a"]
    assert [key.split(" | ")[::2] for key in opened(tmp_path).results] == [["checks: a", "H200"]]


def test_what_there_is_no_time_for_is_left_out(tmp_path, steps):
    assert run_steps(steps[0], opened(tmp_path), Clock(0)) == ({}, ["checks: a", "checks: b", "checks: c"])
    assert not list(tmp_path.iterdir())


def test_a_digest_follows_what_a_kernel_imports(tmp_path, monkeypatch):
    for path in stored.HERE.rglob("*.py"):
        copy = tmp_path / path.relative_to(stored.HERE)
        copy.parent.mkdir(exist_ok=True)
        copy.write_bytes(path.read_bytes())
    before = {modules: digest_of(modules) for modules in (("linear",), ("attention",), ("pooling",), None)}
    monkeypatch.setattr(stored, "HERE", tmp_path)

    def changed_by(file):
        with (tmp_path / file).open("a") as source:
            source.write("\n")
        after = {modules: digest_of(modules) for modules in before}
        changed = [modules for modules in before if after[modules] != before[modules]]
        before.update(after)
        return changed

    assert changed_by("kernels/__init__.py") == [None]
    assert changed_by("ptx/softmax.py") == [("attention",), None]
    assert changed_by("ptx/mma.py") == [("linear",), ("attention",), None]
    assert changed_by("toolchain.py") == list(before)
    assert changed_by("plan.py") == [None]


def test_numbers():
    row, timed = {"name": "x", "ok": True}, {"case": "MiniLM 8x128", "work": 8, "cells": {}}
    done = {Step("start", "device", None): {"copy GB/s": 4300, "date": "today"},
            Step("checks", "rows", None): {"rows": [row], "ok": True},
            Step("sanitizer", "memcheck rows", None): {"verdict": "clean", "ok": True},
            Step("encoder", "MiniLM 8x128", None): timed}
    assert numbers({"GPU": "H200"}, done, ["late"]) == {
        "machine": {"GPU": "H200", "copy GB/s": 4300}, "checks": {"rows": [row]},
        "sanitizer": {"memcheck rows": "clean"}, "encoder": [timed], "left_out": ["late"]}


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
    record = Record(tmp_path / "new" / "gpu.json", {"GPU": "H200"})
    record.put("good", "digest", {"error": 0.5})
    with pytest.raises(ValueError, match="JSON compliant"):
        record.put("bad", "digest", {"error": float("nan")})
    assert list(json.loads(record.path.read_text())["results"]) == ["good | digest | H200"]
    assert list(record.path.parent.iterdir()) == [record.path]


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


def test_what_the_sanitizer_finds(monkeypatch):
    monkeypatch.setattr(isolate, "_run", python("print('========= a race'); print('chatter'); exit(86)"))
    assert isolate.sanitize("sanitizer", "racecheck", "rows", 60) == "found: ========= a race"
    monkeypatch.setattr(isolate, "_run", python("print('[]')"))
    assert isolate.sanitize("sanitizer", "racecheck", "rows", 60) == "clean"
