"""The table of checkpoints in docs/coverage.md is made from the golden models of today."""

from . import coverage


def test_the_table_is_of_today():
    written = coverage.DOCUMENT.read_text(encoding="utf-8")
    assert written == coverage.document(), "run python -m tests.families.coverage"


def test_the_list():
    rows = coverage.checkpoints()
    assert len({row.name for row in rows}) == len(rows) == 269
    assert {*coverage.SETTINGS} == {row.model_type for row in rows if "/" in row.model_type}
    assert {*coverage.ARRAYS} <= {row.kind for row in rows}
    assert sum(row.word == "whole" for row in rows) >= 170


def test_a_word_follows_from_the_golden_models(monkeypatch):
    rows = {row.name: row for row in coverage.checkpoints()}
    ranker, model = rows["cross-encoder/ms-marco-MiniLM-L6-v2"], rows["Rostlab/prot_bert"]
    assert (ranker.word, model.word) == ("whole", "whole")
    monkeypatch.setattr(coverage, "golden_tasks", lambda: {"bert": frozenset({"encode", "fill_mask"})})
    assert (ranker.word, model.word, rows["openai-community/gpt2"].word) == ("half", "whole", "refused")
    monkeypatch.setattr(coverage, "golden_tasks", dict)
    assert {row.word for row in rows.values() if row.kind not in coverage.ARRAYS} == {"refused"}
