"""`engine calibrate`, `engine compare --calibration` and calls with a coverage on the command line."""

import json

import numpy as np
import pytest

from engine import Engine
from engine.cli.main import main

from ..tools.head_models import folder_of
from ..tools.head_texts import sentence

pytest.importorskip("tokenizers")

TEXTS = [sentence(i, 4 + i % 9) for i in range(200)]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Return a file of labelled texts, of which three in four have the label that the model gives."""
    rng = np.random.default_rng(0)
    engine = Engine.load(folder_of("bert_classify"), threads=1)
    names = engine.heads["classify"].labels
    rows = [(one["label"] if rng.random() < 0.75 else names[rng.integers(3)], text)
            for one, text in zip(engine.classify(TEXTS), TEXTS, strict=True)]
    path = tmp_path_factory.mktemp("data") / "labelled.tsv"
    path.write_text("".join(f"{label}\t{text}\n" for label, text in rows), encoding="utf-8")
    return path


def run(*arguments):
    return main([*map(str, arguments), "--threads", "1"])


def test_calibrate(data, tmp_path, capsys):
    out, picture = tmp_path / "m.npz", tmp_path / "r.svg"
    assert run("calibrate", folder_of("bert_classify"), "--data", data, "-o", out, "--picture", picture) == 0
    printed = capsys.readouterr().out
    assert "  measured on        100 others\n" in printed
    assert all(f"  {name}" in printed for name in ("ECE", "Brier score", "log loss", "accuracy"))
    assert picture.read_text(encoding="utf-8").startswith("<svg")
    assert main(["info", str(out)]) == 0
    assert "  calibrated for     classify\n" in capsys.readouterr().out
    engine = Engine.load(out, threads=1)
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS[:3]) + "\n", encoding="utf-8")
    assert run("classify", out, tmp_path / "texts.txt", "--coverage", "0.8", "--conformal-score", "aps") == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert found == engine.classify(TEXTS[:3], coverage=0.8, conformal_score="aps")
    assert run("compare", out, "--calibration", "--data", data, "--other", data, "--coverage", "0.8") == 0
    printed = capsys.readouterr().out
    assert [line for line in printed.splitlines() if line[0] != " "] == [
        f"{precision}, {data}: 200 texts" for precision in ("float32", "bfloat16", "int8")]
    assert printed.count("LAC for 0.8") == 3
    assert printed.count("shift") == 3


def test_two_files(data, tmp_path, capsys):
    out, other = tmp_path / "m.npz", tmp_path / "other.tsv"
    other.write_text("".join(f"dull\t{'the ' * (1 + i % 3)}\n" for i in range(150)), encoding="utf-8")
    assert run("calibrate", folder_of("bert_classify"), "--data", data, "-o", out) == 0
    capsys.readouterr()
    assert run("compare", out, "--calibration", "--data", data, "--other", other, "--precision", "int8") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line[0] != " "] == [
        f"{precision}, {path}: {n} texts" for precision in ("float32", "int8")
        for path, n in ((data, 200), (other, 150))]
    alarms = ["unlike the texts" in line for line in lines if line.startswith("  shift")]
    assert alarms == [False, True, False, True]


def test_compare_in_three_products_of_two_parts(data, tmp_path, monkeypatch, capsys):
    isa = pytest.importorskip("engine.backends.cython_cpu.isa", reason="the compiled kernels are not built")
    name = next((name for name in isa.available() if isa.load(name).product("bfloat16x3").exists), None)
    if name is None:
        pytest.skip("no kernels here have it")
    monkeypatch.setenv("ENGINE_ISA", name)
    out = tmp_path / "m.npz"
    assert run("calibrate", folder_of("bert_classify"), "--data", data, "-o", out, "--precision", "bfloat16x3") == 0
    capsys.readouterr()
    assert run("compare", out, "--calibration", "--data", data, "--precision", "bfloat16x3") == 0
    heads = [line for line in capsys.readouterr().out.splitlines() if line[0] != " "]
    assert heads == [f"{precision}, {data}: 200 texts" for precision in ("float32", "bfloat16x3")]


def written(path, text):
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(("name", "line"), [
    ("bert_pairs", "{label}\tWho {i}?\t{text}"), ("bert_answer", "{first}\tWho?\t{text}"),
    ("bert_tag", "{tags}\t{text}"),
])
def test_other_tasks(name, line, tmp_path, capsys):
    tags = Engine.load(folder_of("bert_tag")).heads["tag"].labels
    rng = np.random.default_rng(1)
    rows = [line.format(label=int(rng.integers(2)), i=i // 5, text=text, first=text.split()[0],
                        tags=" ".join(tags[rng.integers(6)] for _ in text.split())) for i, text in enumerate(TEXTS)]
    path = written(tmp_path / "d.tsv", "\n".join(rows) + "\n")
    status = run("calibrate", folder_of(name), "--data", path, "-o", tmp_path / "m.npz")
    captured = capsys.readouterr()
    if status:      # labels at random may say nothing, which is an error and no file
        assert "no temperature is the best" in captured.err
        assert not (tmp_path / "m.npz").exists()
    else:
        assert "m.npz" in captured.out
        assert Engine.load(tmp_path / "m.npz").calibrations
