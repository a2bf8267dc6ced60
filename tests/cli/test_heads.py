"""The commands `classify`, `tag`, `answer` and `rank`: lines or JSON objects in, JSON lines out."""

import json

import pytest

from engine import Engine
from engine.cli.main import main

from ..tools.head_models import folder_of
from ..tools.zero_shot import nli_folder

pytest.importorskip("tokenizers")


def run(capsys, *arguments):
    assert main([*map(str, arguments), "--threads", "1"]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def write(path, *lines):
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def load(name):
    return Engine.load(folder_of(name), threads=1)


def test_classify(tmp_path, capsys):
    texts = ["a lovely cat", "", "awful 😀"]
    lines = write(tmp_path / "texts.txt", *texts)
    assert run(capsys, "classify", folder_of("bert_classify"), lines) == load("bert_classify").classify(texts)
    objects = write(tmp_path / "texts.jsonl", *(json.dumps({"text": text, "id": 3}) for text in texts))
    assert run(capsys, "classify", folder_of("bert_classify"), objects, "--top-k", "0") == (
        load("bert_classify").classify(texts, top_k=None))


def test_classify_with_labels(capsys):
    model, texts = nli_folder("bart_classify"), ["--text", "a cat", "--text", "lovely"]
    engine = Engine.load(model, threads=1)
    asked = {"candidate_labels": ["good", "awful rain"], "hypothesis_template": "it is {}", "multi_label": True}
    several = ["--candidate-labels", "good", "awful rain", "--hypothesis-template", "it is {}", "--multi-label"]
    assert run(capsys, "classify", model, *texts, *several, "--top-k", "0") == (
        engine.classify(["a cat", "lovely"], top_k=None, **asked))
    one = ["--candidate-label", "good, awful rain"]
    assert run(capsys, "zero-shot-classification", model, *texts, *one) == (
        engine.classify(["a cat", "lovely"], candidate_labels="good, awful rain"))


@pytest.mark.parametrize(("options", "message"), [
    (["--multi-label"], "are about labels of your own; give each with --candidate-label"),
    (["--candidate-labels", "a", "a"], "--candidate-labels must have each label once, and 'a' is there twice"),
    (["--candidate-label", "a", "--hypothesis-template", "x"], "--hypothesis-template must have {} once"),
])
def test_wrong_labels(options, message, capsys):
    assert main(["classify", str(nli_folder("bart_classify")), "--text", "a", *options]) == 1
    assert message in capsys.readouterr().err


def test_info_lists_the_heads(capsys):
    assert main(["info", str(folder_of("bert_tag"))]) == 0
    told = capsys.readouterr().out
    assert "  heads              tag (6 labels)\n" in told
    assert f"  labels (tag)       {', '.join(load('bert_tag').heads['tag'].labels)}\n" in told


def test_tag(tmp_path, capsys):
    texts = ["Anna lives in Berlin.", "no names"]
    lines = write(tmp_path / "texts.txt", *texts)
    assert run(capsys, "tag", folder_of("bert_tag"), lines) == (
        load("bert_tag").tag(texts, aggregation_strategy="simple"))
    assert run(capsys, "tag", folder_of("bert_tag"), lines, "--aggregation-strategy", "none") == (
        load("bert_tag").tag(texts))


def test_answer(tmp_path, capsys):
    question, context = "Who lives in Berlin?", "Anna lives in Berlin.\tBilal does not."
    lines = write(tmp_path / "asked.txt", f"{question}\t{context}")
    expected = load("bert_answer").answer([question], [context])
    assert run(capsys, "answer", folder_of("bert_answer"), lines) == expected
    objects = write(tmp_path / "asked.txt", json.dumps({"question": question, "context": context}))
    assert run(capsys, "answer", folder_of("bert_answer"), objects, "--jsonl") == expected


def test_rank(tmp_path, capsys):
    documents = ["Anna lives in Berlin.", "The cat sat on a mat."]
    expected = load("bert_pairs").rank("Who?", documents, return_documents=True)
    lines = write(tmp_path / "documents.txt", *documents)
    assert run(capsys, "rank", folder_of("bert_pairs"), lines, "--query", "Who?", "--return-documents") == [expected]
    objects = write(tmp_path / "asked.jsonl", json.dumps({"query": "Who?", "documents": documents}), "")
    assert run(capsys, "rank", folder_of("bert_pairs"), objects, "--top-k", "1") == [
        load("bert_pairs").rank("Who?", documents, top_k=1)]


def test_inputs_themselves(capsys):
    question, context = "Who lives in Berlin?", "Anna lives in Berlin."
    assert run(capsys, "classify", "--text", "a cat", folder_of("bert_classify")) == (
        load("bert_classify").classify(["a cat"]))
    assert run(capsys, "answer", folder_of("bert_answer"), "--question", question, "--context", context) == (
        load("bert_answer").answer([question], [context]))
    assert run(capsys, "rank", "--query", "Who?", folder_of("bert_pairs"), "--document", "b", "--document", "a") == [
        load("bert_pairs").rank("Who?", ["b", "a"])]


def test_one_question_to_each_line(tmp_path, capsys):
    contexts = ["Anna lives in Berlin.", "Bilal lives in Rome.\tNot in Berlin."]
    lines = write(tmp_path / "contexts.txt", *contexts)
    assert run(capsys, "answer", folder_of("bert_answer"), "--question", "Who?", lines) == (
        load("bert_answer").answer(["Who?"] * 2, contexts))


def test_results_in_a_file(tmp_path, capsys):
    lines, out = write(tmp_path / "texts.txt", "a lovely cat"), tmp_path / "out.jsonl"
    assert run(capsys, "classify", folder_of("bert_classify"), "-o", out, lines) == []
    assert json.loads(out.read_text(encoding="utf-8")) == load("bert_classify").classify("a lovely cat")
