"""The examples of heads run, and find what the engine's own methods find."""

import numpy as np
import pytest

from engine import Engine, Reranker

from ..tools import late_folders, splade
from ..tools.examples import example
from ..tools.head_models import folder_of
from ..tools.head_texts import LONG, TEXTS, sentence
from ..tools.paths import IMAGES
from ..tools.zero_shot import nli_folder

pytest.importorskip("tokenizers")


def test_sparse_search():
    functions, engine = example("sparse_search"), Engine.load(folder_of("bert_fill_mask"), threads=1)
    texts = [*TEXTS[:6], TEXTS[13]]
    found = functions["search"](engine, functions["build"](engine, texts), "Anna in Berlin", 3)
    scores = engine.encode_sparse("Anna in Berlin").dot(engine.encode_sparse(texts, max_active_dims=256))[0]
    assert [place for place, _ in found] == np.argsort(-scores, kind="stable")[:3].tolist()
    np.testing.assert_allclose([score for _, score in found], np.sort(scores)[::-1][:3], rtol=1e-5)


def test_sparse_search_with_the_real_model(capsys):
    functions = example("sparse_search")
    if not splade.FOLDER.exists():
        pytest.skip(splade.MISSING)
    functions["main"](str(splade.FOLDER), "What do cats do at night?")
    lines = capsys.readouterr().out.splitlines()
    assert "cats" in lines[0]
    assert lines[1].endswith("Cats sleep for most of the day and hunt at night.")


def test_search_and_rerank():
    functions = example("search_and_rerank")
    encoder = Engine.load(folder_of("bert_classify"), threads=1)
    reranker = Reranker.load(folder_of("bert_pairs"), threads=1)
    texts = list(TEXTS[:12])
    found = functions["search_and_rerank"](encoder, reranker, "Anna in Berlin", texts, 5)
    assert sorted(one["place"] for one in found) == sorted(functions["search"](encoder, "Anna in Berlin", texts, 5))
    assert [one["score"] for one in found] == sorted((one["score"] for one in found), reverse=True)
    assert all(one["score"] == reranker.predict(("Anna in Berlin", one["text"])) for one in found)


def test_tags(tmp_path, capsys):
    functions, folder = example("tags"), folder_of("bert_tag")
    (tmp_path / "texts.txt").write_text("\n".join((TEXTS[0], TEXTS[3], " ".join(LONG.split()[:700]))), encoding="utf-8")
    functions["main"](str(folder), str(tmp_path / "texts.txt"), "0")
    lines = capsys.readouterr().out.splitlines()
    engine = Engine.load(folder)
    entities = engine.tag(TEXTS[0], aggregation_strategy="first", stride=16)
    assert entities
    expected = TEXTS[0]
    for entity in reversed(entities):
        expected = f"{expected[: entity['start']]}[{entity['entity_group']}]{expected[entity['end'] :]}"
    assert lines[0] == expected
    assert len(lines) == 3
    assert functions["replace"]("a b", []) == "a b"
    assert functions["find"](engine, list(TEXTS[:3]), 1.1) == [[], [], []]


def test_answers(tmp_path, capsys):
    functions = example("answers")
    encoder, reader = Engine.load(folder_of("bert_classify")), Engine.load(folder_of("bert_answer"))
    texts = [text for text in TEXTS[:20] if text.strip()]
    places = functions["search"](encoder, "Who lives in Berlin?", texts, 5)
    similarity = encoder.similarity(encoder.encode("Who lives in Berlin?"), encoder.encode(texts))[0]
    assert places == np.argsort(-similarity, kind="stable")[:5].tolist()
    answers = functions["read"](reader, "Who lives in Berlin?", texts, places)
    assert answers
    assert [one["score"] for one in answers] == sorted((one["score"] for one in answers), reverse=True)
    assert all(texts[one["place"]][one["start"] : one["end"]] == one["answer"] for one in answers)
    (tmp_path / "texts.txt").write_text("\n".join(texts[:5]), encoding="utf-8")
    folders = [str(folder_of(name)) for name in ("bert_classify", "bert_answer")]
    functions["main"](*folders, "Who?", str(tmp_path / "texts.txt"))
    assert capsys.readouterr().out


def test_maxsim_search(tmp_path):
    functions = example("maxsim_search")
    encoder = Engine.load(folder_of("bert_classify"), threads=1)
    colbert = Engine.load(late_folders.write_late(tmp_path / "colbert", "roberta"), threads=1)
    texts = list(TEXTS[:12])
    found = functions["search"](encoder, colbert, "Anna in Berlin", texts, 5)
    vectors = encoder.encode(texts, normalize_embeddings=True)
    query = encoder.encode("Anna in Berlin", normalize_embeddings=True)
    assert sorted(place for _, place in found) == sorted(np.argsort(-(vectors @ query))[:5].tolist())
    assert [score for score, _ in found] == sorted((score for score, _ in found), reverse=True)
    scores = colbert.similarity(colbert.encode_query(["Anna in Berlin"]), colbert.encode_document(texts))[0]
    assert all(score == scores[place] for score, place in found)


def test_own_labels(tmp_path, capsys):
    functions, names = example("own_labels"), ["good", "a cat", "Berlin"]
    engine, texts = Engine.load(nli_folder("deberta_classify")), [TEXTS[0], TEXTS[1], "lovely"]
    found = functions["topics"](engine, texts, names, 0.5)
    for text, own in zip(texts, found, strict=True):
        assert set(own) == {name for name in names if engine.classify(
            text, candidate_labels=[name], hypothesis_template="This text is about {}.")["score"] >= 0.5}
    assert functions["topics"](engine, texts, names, 1.1) == [[], [], []]
    (tmp_path / "texts.txt").write_text("\n".join(texts), encoding="utf-8")
    functions["main"](str(nli_folder("deberta_classify")), str(tmp_path / "texts.txt"), *names)
    lines = capsys.readouterr().out.splitlines()
    assert lines == [f"{', '.join(own) or '?'}\t{text}" for own, text in zip(found, texts, strict=True)]


def test_find_pictures(tmp_path, capsys):
    pillow = pytest.importorskip("PIL.Image")
    paths = [tmp_path / "a.png", tmp_path / "below" / "b.PNG"]
    paths[1].parent.mkdir()
    for path, colour in zip(paths, ("red", "blue"), strict=True):
        pillow.new("RGB", (9, 7), colour).save(path, "PNG")
    (tmp_path / "notes.txt").write_text("no picture", encoding="utf-8")
    example("find_pictures")["main"](str(IMAGES / "clip"), str(tmp_path), "<9> <10>", "<17>")
    lines = capsys.readouterr().out.splitlines()
    engine = Engine.load(IMAGES / "clip", threads=1)
    cosines = engine.similarity(engine.encode(["<9> <10>", "<17>"]), engine.encode(paths))
    for i, text in enumerate(["<9> <10>", "<17>"]):
        assert lines[3 * i] == text
        found = [line.split(maxsplit=1) for line in lines[3 * i + 1 : 3 * i + 3]]
        assert {path: float(score) for score, path in found} == pytest.approx(
            {str(path): cosine for path, cosine in zip(paths, cosines[i].tolist(), strict=True)}, abs=6e-4)
        assert found == sorted(found, key=lambda line: -float(line[0]))


def test_sure_labels(tmp_path, capsys):
    functions, folder = example("sure_labels"), folder_of("bert_classify")
    texts = [sentence(i, 4 + i % 9) for i in range(120)]
    engine = Engine.load(folder, threads=1)
    names = engine.heads["classify"].labels
    labels = [one["label"] if i % 4 else names[i % 3] for i, one in enumerate(engine.classify(texts))]
    (tmp_path / "labelled.tsv").write_text("".join(f"{label}\t{text}\n" for label, text in zip(
        labels, texts, strict=True)), encoding="utf-8")
    (tmp_path / "texts.txt").write_text("\n".join(texts[:30]) + "\n", encoding="utf-8")
    functions["main"](str(folder), str(tmp_path / "labelled.tsv"), str(tmp_path / "texts.txt"), "0.7")
    captured = capsys.readouterr()
    lines = captured.out.splitlines()
    assert sorted(line.split("\t")[1] for line in lines) == sorted(texts[:30])
    assert {line.split("\t")[0] for line in lines} <= {*names, "?"}
    assert "of 60 texts" in captured.err
