"""Test the parts of the peers' table, without any peer."""

import json

import numpy as np
import pytest

from ..tools.paths import ROOT
from .conftest import numbers


def ran(library, case, median):
    return {"library": library, "case": case, "median": median, "minimum": median / 2, "calls": 3, "fraction": 0.5,
            "cosine": 0.9999, "least_cosine": 0.99}  # fmt: skip


def test_the_last_line_compares_with_the_fastest_peer():
    from peers.report import table

    rows = [ran("engine", "1x16", 0.010), ran("OpenVINO", "1x16", 0.015)]
    rows.append(ran("PyTorch", "1x16", 0.020) | {"minimum": 0.006})
    rows += [ran("engine", "text", 2.0), ran("PyTorch", "text", 1.0)]
    rows.append({"library": "OpenVINO", "case": "text", "why": "no | x"})
    lines = table(numbers(rows)).splitlines()
    assert "| **ahead by** | 1.50 (1.20) | 0.50 (0.50) |" in lines
    assert "| engine | **10.00 ms (5.00)**<br>50%, 0.99990 | 50 /s (100)<br>50%, 0.99990 |" in lines
    assert "| OpenVINO | 15.00 ms (7.50)<br>50%, 0.99990 | no \\| x |" in lines


def test_a_library_that_did_not_run_says_why_once():
    from peers.report import table

    rows = [ran("PyTorch", case, 1.0) for case in ("1x16", "1x128")]
    rows += [{"library": "engine", "case": case, "why": "not there"} for case in ("1x16", "1x128")]
    lines = table(numbers(rows)).splitlines()
    assert "| engine | not there | |" in lines
    assert "| **ahead by** |  |  |" in lines


def test_numbers_are_added_to_those_that_are_there():
    pytest.importorskip("tokenizers", reason="needs the extra [text]")
    from peers.__main__ import merged

    def row(precision, case, median):
        return {"model": "MiniLM", "precision": precision, **ran("engine", case, median)}

    old = {"peak": {"float32": 200.0}, "rows": [row("float32", "1x16", 1.0), row("float32", "text", 2.0)]}
    new = [row("float32", "1x16", 3.0), row("int8", "1x16", 4.0)]
    assert merged(old, new, {"float32": 190.0, "int8": 300.0}) == {
        "peak": {"float32": 200.0, "int8": 300.0}, "rows": [old["rows"][1], *new]}  # fmt: skip


@pytest.mark.parametrize("changes", [{"cpu": "Another CPU"}, {"threads": 1}], ids=str)
def test_numbers_of_another_machine_are_not_added_to(changes, tmp_path, monkeypatch, capsys):
    pytest.importorskip("tokenizers", reason="needs the extra [text]")
    from peers import __main__ as command

    there = numbers([])
    (tmp_path / "zen3.json").write_text(json.dumps(there))
    monkeypatch.setattr(command, "machine", lambda threads: there["machine"] | changes)
    monkeypatch.setattr("sys.argv", ["peers", "--keep", "--minilm", "none", "--out", str(tmp_path), "--name", "zen3"])
    with pytest.raises(SystemExit):
        command.main()
    here = {"cpu": "A CPU", "threads": 2} | changes
    message = " ".join(capsys.readouterr().err.split())
    assert f"are of A CPU with --threads 2, and this is {here['cpu']} with --threads {here['threads']}" in message
    assert json.loads((tmp_path / "zen3.json").read_text()) == there


def test_the_published_numbers_can_be_added_to():
    """Later versions can add to the published numbers on another day."""
    pytest.importorskip("tokenizers", reason="needs the extra [text]")
    from peers.__main__ import unlike

    published = list((ROOT / "docs/peers").glob("*.json"))
    assert len(published) >= 3
    for path in published:
        measured_on = json.loads(path.read_text())["machine"]
        assert unlike(measured_on, measured_on | {"date": "2100-01-01", "versions": {}}) is None


def test_the_page_of_all_cpus_has_a_line_for_each():
    from peers.report import index

    fast = numbers([ran("engine", "1x16", 0.010), ran("OpenVINO", "1x16", 0.015)])
    slow = numbers([ran("engine", "1x16", 0.010), ran("OpenVINO", "1x16", 0.008)])
    lines = index({"zen3": fast, "amd-26.2": slow}).splitlines()
    assert "| [zen3](zen3.md) | 1.50 (1.50) |  |  |  |  |  |" in lines
    assert "| [amd-26.2](amd-26.2.md) | 0.80 (0.80) |  |  |  |  |  |" in lines


def test_a_cpu_has_its_family_in_its_name(monkeypatch):
    from peers import machine

    monkeypatch.setattr(machine, "cpu_info", lambda: "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 26\n"
                        "model\t\t: 2\nmodel name\t: AMD EPYC\n\nprocessor\t: 1\nmodel\t\t: 3\n")
    assert machine.cpu_name() == "AMD EPYC (family 26, model 2)"
    assert machine.short_name() == "amd-26-2"


def test_cosines():
    from peers.measure import cosines

    reference = np.array([[[1.0, 0.0], [0.0, 2.0]]], np.float32)
    answer = np.array([[[3.0, 0.0], [1.0, 1.0]]], np.float32)
    found = cosines(answer, reference)
    assert found == pytest.approx({"cosine": (1 + 0.5**0.5) / 2, "least_cosine": 0.5**0.5})


def test_sentences_are_many_and_unlike_in_length():
    from peers.work import SENTENCES, sentences

    texts = sentences()
    lengths = [len(text.split()) for text in texts]
    assert len(set(texts)) == len(texts) == SENTENCES
    assert min(lengths) == 4
    assert max(lengths) > 100


def test_batches_and_pooling_lose_nothing():
    from peers.work import BATCH, batches, mean_pool

    class Encoding:
        def __init__(self, text):
            self.ids = [int(word) for word in text.split()]

    class Tokenizer:
        def encode_batch_fast(self, texts):
            return [Encoding(text) for text in texts]

    rng = np.random.default_rng(0)
    rows = [rng.integers(1, 100, n) for n in rng.integers(1, 20, 2 * BATCH + 3)]
    table = rng.standard_normal((100, 8)).astype(np.float32)
    seen = {}
    for members, ids, mask in batches([" ".join(map(str, row)) for row in rows], Tokenizer()):
        assert len(members) <= BATCH
        seen |= dict(zip(members, mean_pool(table[ids], mask), strict=True))
    means = np.stack([table[row].mean(0) for row in rows])
    expected = means / np.linalg.norm(means, axis=1, keepdims=True)
    np.testing.assert_allclose(np.stack([seen[i] for i in range(len(rows))]), expected, rtol=0, atol=1e-6)


def test_results_of_both_forms(tmp_path):
    """Files from before there was a schema can be read, and nothing else is written."""
    from peers.report import table
    from peers.results import problems, read, write

    for path in sorted((ROOT / "docs/peers").glob("*.json")):
        found = read(path)
        assert problems(found) == []
        assert found["machine"]["isa"] in path.read_text(encoding="utf-8")
    old = numbers([ran("engine", "1x16", 0.001)])
    (tmp_path / "old.json").write_text(json.dumps(old))
    read_back = read(tmp_path / "old.json")
    assert read_back["machine"]["commit"] is read_back["machine"]["steal"] is None
    here = read_back["machine"] | {"isa": "avx2", "commit": "abc+", "steal": 0.25}
    write(tmp_path / "new.json", read_back | {"machine": here})
    assert read(tmp_path / "new.json")["machine"] == here
    page = table(read(tmp_path / "new.json"))
    assert "- Commit abc, with changes that are not committed." in page
    assert "- The hypervisor gave 25.0% of the CPU time to other machines." in page
    for wrong, message in (({"schema": 3}, "has the form 3"), ({"rows": {}}, "rows must be list"),
                           ({"machine": here | {"steal": 1}}, "machine.steal"), ({"rows": [{}]}, "row 0 needs")):
        (tmp_path / "bad.json").write_text(json.dumps(read(tmp_path / "new.json") | wrong))
        with pytest.raises(ValueError, match=message):
            read(tmp_path / "bad.json")
    with pytest.raises(ValueError, match="row 0 needs"):
        write(tmp_path / "unwritten.json", read_back | {"rows": [{}]})
    assert not (tmp_path / "unwritten.json").exists()


def test_stolen_time(tmp_path):
    from peers.results import Steal, isa_of, machine, problems

    stat = tmp_path / "stat"
    stat.write_text("cpu  100 0 100 700 50 0 0 50 10 0\ncpu0 1 2\n")
    steal = Steal(stat)
    stat.write_text("cpu  150 0 100 720 50 0 0 80 20 0\n")
    assert steal.share() == 0.3                     # 30 of 100 ticks; guests' 10 are part of the users' 50
    assert Steal(tmp_path / "none").share() is None
    assert isa_of("amx kernels (of amx, avx2 here)") == "amx"
    here = {"schema": 2, "tool": "peers", "quick": False, "machine": machine(1), "rows": []}
    assert problems(here) == []


def test_pages_of_images_follow_from_the_stored_numbers():
    from peers.media_report import table
    from peers.results import read

    paths = [*(ROOT / "docs/peers").glob("*-media.json")]
    assert paths
    for path in paths:
        assert path.with_suffix(".md").read_text(encoding="utf-8") == table(read(path), path.name)


def test_images_are_compared_with_the_fastest_peer():
    from peers.media_report import table

    rows = [ran("engine", "", 0.010), ran("OpenVINO", "", 0.015), ran("ONNX Runtime", "", 0.020) | {"minimum": 0.006}]
    found = numbers([row | {"row": "ViT", "precision": "int8"} for row in rows] + [
        {"row": "ViT", "precision": "int8", "library": "PyTorch", "why": "not there"}])
    assert "| ViT, int8 | **10.0 (5.0)** | 15.0 (7.5) | 20.0 (6.0) |  | 1.50 (1.20) |" in table(found, "x").splitlines()
