"""Each route with one input, a list, ids, nothing, a long text, and with wrong ones; results equal the library's."""

import base64
import json
import warnings
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from huggingface_hub import InferenceClient

from engine import Engine
from engine.jobs.batch_api import BatchRequest
from engine.jobs.batch_api import answer as batch_answer

from ..tools.encoders import engine_of
from ..tools.head_models import folder_of
from ..tools.late_folders import write_late
from ..tools.tiny_models import random_model
from ..tools.tiny_text import ids, tiny_text
from ..tools.zero_shot import nli_folder

pytest.importorskip("uvicorn")

from engine.server import cohere

from ..tools.serving import serving

TEXTS = ["the cat sat", "a dog ran far and away"]
LONG = "the cat sat on a mat " * 40
EMBED = {"/v1/embeddings": {"input": TEXTS}, "/embed": {"inputs": TEXTS}, "/v2/embed": {"texts": TEXTS},
         "/embed_all": {"inputs": TEXTS}}
PROMPTS = {"query": "query : ", "document": "the ", "clustering": "far "}


def make(name, folder):
    """Return one of the models of the tests."""
    if name == "vectors":
        return engine_of(random_model(tiny_text(max_seq_length=12, prompts=PROMPTS, include_prompt=False)), threads=1)
    if name == "late":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")     # the folder has words that are no tokens
            return Engine.load(write_late(folder, "bert"), threads=1)
    return Engine.load(nli_folder("bert_classify") if name == "nli" else folder_of(name), threads=1)


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """Return a function that gives the client of a server with one of the models."""
    with ExitStack() as stack:
        made = {}

        def get(name):
            if name not in made:
                made[name] = stack.enter_context(serving(make(name, tmp_path_factory.mktemp(name) / "model")))
            return made[name]

        yield get


@dataclass
class Case:
    """How one route is asked, and what the library says."""

    path: str
    model: str
    one: dict[str, Any]
    many: dict[str, Any]
    family: str
    field: str
    """The field with the inputs."""
    expected: Any
    """Returns what the body for one and for many inputs must have."""
    empty: dict[str, Any]
    ids: dict[str, Any] | None = None
    empty_text: dict[str, Any] | None = None
    """A body with an empty text, which the family refuses; None if it takes one."""


def vectors(model, data, **options):
    return model.encode(data, **options)


def openai(model, inputs):
    rows = vectors(model, inputs)
    return {"object": "list", "model": "tiny", "data": [
        {"object": "embedding", "index": i, "embedding": row} for i, row in enumerate(rows)]}


def labels(model, inputs):
    return [[{"score": one["score"], "label": one["label"]} for one in row]
            for row in model.classify(inputs, top_k=None)]


ASKED = {"candidate_labels": ["good", "a cat"], "hypothesis_template": "it is {}", "multi_label": True}


def own_labels(model, inputs):
    return model.classify(inputs, top_k=None, **ASKED)


def ranks(model, inputs):
    return [{"index": one["corpus_id"], "relevance_score": one["score"], "document": {"text": one["text"]}}
            for one in model.rank("a cat", inputs, return_documents=True)]


def tei_ranks(model, inputs):
    return [{"index": one["corpus_id"], "score": one["score"], "text": one["text"]}
            for one in model.rank("a cat", inputs, return_documents=True)]


def scores(model, inputs):
    return [{"index": i, "object": "score", "score": one}
            for i, one in enumerate(model.predict([("a cat", text) for text in inputs]))]


def sparse(model, inputs):
    return [[{"index": int(index), "value": value} for index, value in zip(row.indices, row.values, strict=True)]
            for row in model.encode_sparse(inputs)]


def inputs_case(path, model, expected, *, with_ids=True):
    return Case(path, model, {"inputs": TEXTS[0]}, {"inputs": TEXTS}, "tei", "inputs", expected, {"inputs": []},
                {"inputs": [ids(TEXTS[0]), ids(TEXTS[1])]} if with_ids else None, {"inputs": [TEXTS[0], ""]})


CASES = [
    Case("/v1/embeddings", "vectors", {"input": TEXTS[0]}, {"input": TEXTS}, "openai", "input", openai, {"input": []},
         {"input": [ids(TEXTS[0]), ids(TEXTS[1])]}, {"input": [TEXTS[0], ""]}),
    Case("/v2/embed", "vectors", {"texts": TEXTS[:1]}, {"texts": TEXTS}, "cohere", "texts",
         lambda model, inputs: {"float": vectors(model, inputs)}, {"texts": []}),
    inputs_case("/embed", "vectors", lambda model, inputs: vectors(model, inputs, normalize_embeddings=True)),
    inputs_case("/embed_all", "vectors", lambda model, inputs: vectors(
        model, inputs, output_value="token_embeddings")),
    inputs_case("/embed_all", "late", lambda model, inputs: model.encode_tokens(inputs), with_ids=False),
    inputs_case("/embed_sparse", "bert_fill_mask", sparse, with_ids=False),
    Case("/predict", "bert_classify", {"inputs": TEXTS[0]}, {"inputs": [[text] for text in TEXTS]}, "tei", "inputs",
         labels, {"inputs": []}, None, {"inputs": ""}),
    Case("/zero-shot", "nli", {"inputs": TEXTS[0], "parameters": ASKED}, {"inputs": TEXTS, "parameters": ASKED}, "tei",
         "inputs", own_labels, {"inputs": [], "parameters": ASKED}, None, {"inputs": "", "parameters": ASKED}),
    *(Case(path, "bert_pairs", {"query": "a cat", "documents": TEXTS[:1], "return_documents": True},
           {"query": "a cat", "documents": TEXTS, "return_documents": True}, "cohere", "documents", ranks,
           {"query": "a cat", "documents": []}) for path in ("/rerank", "/v1/rerank", "/v2/rerank")),
    Case("/rerank", "bert_pairs", {"query": "a cat", "texts": TEXTS[:1], "return_text": True},
         {"query": "a cat", "texts": TEXTS, "return_text": True}, "tei", "texts", tei_ranks,
         {"query": "a cat", "texts": []}),
    *(Case(path, "bert_pairs", {"text_1": "a cat", "text_2": TEXTS[0]}, {"text_1": "a cat", "text_2": TEXTS}, "openai",
           "text_2", scores, {"text_1": "a cat", "text_2": []}) for path in ("/score", "/v1/score")),
    Case("/similarity", "vectors", {"inputs": {"source_sentence": "a cat", "sentences": TEXTS[:1]}},
         {"inputs": {"source_sentence": "a cat", "sentences": TEXTS}}, "tei", "inputs.sentences",
         lambda model, inputs: model.similarity(model.encode(["a cat"]), model.encode(inputs))[0],
         {"inputs": {"source_sentence": "a cat", "sentences": []}}, None,
         {"inputs": {"source_sentence": "", "sentences": TEXTS}}),
    Case("/tag", "bert_tag", {"inputs": TEXTS[0]}, {"inputs": TEXTS}, "openai", "inputs",
         lambda model, inputs: model.tag(inputs, aggregation_strategy="simple"), {"inputs": []}),
    Case("/tokenize", "vectors", {"inputs": TEXTS[0]}, {"inputs": TEXTS}, "tei", "inputs",
         lambda model, inputs: [[token_of(model, number) for number in model.tokenizer.encode(text)]
                                for text in inputs], {"inputs": []}, None, {"inputs": ""}),
    Case("/decode", "vectors", {"ids": ids(TEXTS[0])}, {"ids": [ids(text) for text in TEXTS]}, "tei", "ids",
         lambda model, inputs: inputs, {"ids": []}, None, {"ids": [[]]}),
]
CUTS = {"openai": False, "cohere": True, "tei": True}
"""Whether the routes of a family cut a long text unless a request says something else."""
EACH = pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.path} {case.model} {case.family}")


def token_of(model, number):
    return {"id": number, "special": number in (2, 3)}


def result(case, data):
    """Return the part of a body that holds the results."""
    for name in ("data", "results", "embeddings") if isinstance(data, dict) else ():
        if name in data:
            return data if case.path == "/v1/embeddings" else data[name]
    return data


def same(found, expected):
    """Return whether a value of JSON has the bits of a result of the library."""
    if isinstance(expected, np.ndarray):
        return np.array_equal(np.array(found, np.float32), expected)
    if isinstance(expected, dict):
        return all(same(found[name], one) for name, one in expected.items())
    if isinstance(expected, list):
        return isinstance(found, list) and len(found) == len(expected) and all(map(same, found, expected))
    if isinstance(expected, (float, np.floating)):
        return np.float32(found) == np.float32(expected)
    return bool(found == expected)


def refused(case, answer, status):
    """Check that an answer is an error in the form of its family, and return its message."""
    assert answer.status == status, answer.data
    assert answer.headers["x-request-id"]
    if case.family == "tei":
        assert set(answer.data) == {"error", "error_type"}
        return answer.data["error"]
    if case.family == "cohere":
        assert set(answer.data) == {"id", "message", "error"}
        assert answer.data["error"]["message"] == answer.data["message"]
        return answer.data["message"]
    assert set(answer.data["error"]) == {"message", "type", "param", "code"}
    return answer.data["error"]["message"]


def wrong_status(case):
    return 422 if case.family == "tei" else 400


@EACH
def test_one_and_a_list_have_the_bits_of_the_library(served, case):
    client = served(case.model)
    one, many = client.post(case.path, case.one), client.post(case.path, case.many)
    assert (one.status, many.status) == (200, 200), (one.data, many.data)
    expected = case.expected(client.model, TEXTS)
    assert same(result(case, many.data), expected)
    found = result(case, one.data)
    alone = case.expected(client.model, TEXTS[:1])
    assert same(found, alone) or same([found], alone)
    assert "x-engine-truncated" not in one.headers


@pytest.mark.parametrize("case", [case for case in CASES if case.ids], ids=lambda case: f"{case.path} {case.model}")
def test_ids_are_read_as_they_are(served, case):
    client = served(case.model)
    found = result(case, client.post(case.path, case.ids).data)
    inputs = [{"input_ids": [row]} for row in case.ids[case.field]]
    states = [client.model.forward(**one)[0] for one in inputs]
    rows = [state.mean(axis=0) for state in states]
    if case.path == "/embed_all":
        assert same(found, states)
    else:
        found = [row["embedding"] for row in found["data"]] if case.path == "/v1/embeddings" else found
        scale = [np.linalg.norm(row) if case.path == "/embed" else 1 for row in rows]
        np.testing.assert_allclose(found, [row / own for row, own in zip(rows, scale, strict=True)], rtol=1e-5)
        alone = result(case, client.post(case.path, {case.field: case.ids[case.field][0]}).data)
        alone = alone["data"][0]["embedding"] if case.path == "/v1/embeddings" else alone[0]
        assert same(alone, np.array(found[0], np.float32))


@EACH
def test_a_long_text_is_cut_or_refused(served, case):
    client = served(case.model)
    if case.path in ("/tokenize", "/decode"):
        return
    name = case.field.partition(".")[0]
    inner: Any = {"inputs": [LONG], "texts": [LONG], "documents": [LONG], "input": [LONG], "text_2": [LONG]}[name]
    if case.path == "/similarity":
        inner = {"source_sentence": LONG, "sentences": TEXTS}
    if case.path == "/predict":
        inner = [[LONG]]
    body = case.one | {name: inner}
    whole, cut = (client.post(case.path, body | {"truncate": truncate}) for truncate in ("NONE", "END"))
    message = refused(case, whole, 413 if case.family == "tei" else 400)
    limit = client.model.max_seq_length
    assert f"at most {limit:,}" in message
    assert "too large" in message       # which clients of llama-server look for
    assert "has 24" in message or "has 48" in message, message
    assert cut.status == 200
    assert cut.headers["x-engine-truncated"] == "1"
    assert result(case, cut.data) == result(case, client.post(case.path, body | {"truncate": True}).data)
    silent = client.post(case.path, body)
    assert silent.status == (200 if CUTS[case.family] else whole.status)
    assert client.post(case.path, body | {"truncate": False}).status == whole.status


def refusals(client, asked):
    """Return a line for each (path, body): the status and the body of the answer, which `snapshot` records.

    Only the number of the request is left out, which differs each time.
    """
    lines = []
    for path, body in asked:
        answer = client.post(path, body)
        assert answer.status >= 400
        assert answer.headers["x-request-id"]
        kept = {name: value for name, value in answer.data.items() if name != "id"}
        lines.append(f"{path} {body!r}: {answer.status} {json.dumps(kept, ensure_ascii=False)}")
    return "\n".join(lines)


@EACH
def test_what_is_wrong_is_named(served, case, snapshot):
    name = case.field.partition(".")[0]
    values = [5, True, None, 1.5, {"a": 1}, [[["x"]]], [None], [1e999], [float("nan")]]
    bodies = [b"", b"[", b'{"a":', b"\xff", b"{}{}", '{"x": "é"}'.encode("latin-1"), b"[1]", b"null", b"NaN",
              f'{{"{name}": "x", "{name}": "y"}}'.encode(), {"model": "tiny"}, half(case), case.empty,
              *(case.one | one for one in [*({name: value} for value in values), {"imput": 1}, {"\ud800": 1},
                                           {"model": "large"}])]  # fmt: skip
    if case.ids is not None:
        bodies += [case.ids | {"prompt_name": "query"}, *({name: ids} for ids in ([[1, 30]], [[-1]], ["a", 1]))]
    bodies += [] if case.empty_text is None else [case.empty_text]
    client = served(case.model)
    assert refusals(client, [(case.path, body) for body in bodies]) == snapshot
    assert client.post(case.path, case.one | {"model": "other name"}).status == 200


def half(case):
    """Return a body with half of a surrogate pair in a text."""
    name = case.field.partition(".")[0]
    if case.path == "/decode":
        return {"ids": [2**40]}
    inner: Any = "\ud800"
    if case.path == "/similarity":
        inner = {"source_sentence": "\ud800", "sentences": ["x"]}
    elif case.family == "cohere" or name == "texts":
        inner = ["\ud800"]
    return case.one | {name: inner}


@EACH
def test_a_model_without_the_head_says_what_it_serves(served, case):
    without = {"vectors": "bert_classify", "bert_classify": "vectors"}.get(case.model, "vectors")
    answer = served(without).post(case.path, case.one)
    if case.model == "vectors" or case.path == "/embed_all":
        assert answer.status == 200         # every encoder of texts has vectors and tokens
    else:
        assert "this model serves embed" in refused(case, answer, 400)


def unit_vectors(model, texts, dimensions):
    """Return the first dimensions of vectors as a batch in OpenAI's form has them."""
    request = BatchRequest("one", tuple(texts), encoding_format="base64", dimensions=dimensions)
    rows = batch_answer(request, model.encode(texts), 0)["response"]["body"]["data"]
    found = np.array([np.frombuffer(base64.b64decode(row["embedding"]), np.float32) for row in rows])
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-6)
    return found


def test_a_type_or_a_label_that_comes_often_costs_once(served, monkeypatch):
    made = []
    quantize = cohere.quantize_vectors
    monkeypatch.setattr(cohere, "quantize_vectors", lambda *args, **rest: made.append(1) or quantize(*args, **rest))
    body = {"texts": TEXTS, "embedding_types": ["binary", "ubinary"] * 50}
    assert served("vectors").post("/v2/embed", body).data["embeddings"].keys() == {"binary", "ubinary"}
    assert len(made) == 2
    asked, client, own = {"inputs": TEXTS[0], "ignore_labels": []}, served("bert_tag"), []
    labels = {one["entity_group"] for one in client.post("/tag", asked).data}
    submit = client.served.service.submit
    monkeypatch.setattr(client.served.service, "submit", lambda task, inputs, options, **rest: own.append(
        options["ignore_labels"]) or submit(task, inputs, options, **rest))
    found = client.post("/tag", asked | {"ignore_labels": [*labels, "no such label", *labels] * 50}).data
    assert found == []
    assert sorted(own[0]) == sorted(labels)


def test_base64_and_dimensions(served):
    client = served("vectors")
    whole = client.model.encode(TEXTS)
    for changes, expected in (({}, whole), ({"dimensions": 5}, unit_vectors(client.model, TEXTS, 5)),
                              ({"dimensions": 12}, unit_vectors(client.model, TEXTS, 12))):
        answer = client.post("/v1/embeddings", {"input": TEXTS, "encoding_format": "base64"} | changes)
        rows = [np.frombuffer(base64.b64decode(row["embedding"]), np.float32) for row in answer.data["data"]]
        assert np.array_equal(rows, expected)
        tokens = sum(len(client.model.tokenizer.encode(text)) for text in TEXTS)
        assert answer.data["usage"] == {"prompt_tokens": tokens, "total_tokens": tokens}
    found = client.post("/v2/embed", {"texts": TEXTS, "embedding_types": ["base64", "ubinary", "binary"],
                                      "output_dimension": 8}).data["embeddings"]
    eight = unit_vectors(client.model, TEXTS, 8)
    assert [base64.b64decode(row) for row in found["base64"]] == [row.tobytes() for row in eight]
    for kind in ("ubinary", "binary"):
        assert found[kind] == client.model.encode(TEXTS, truncate_dim=8, precision=kind).tolist()


@pytest.mark.parametrize(("path", "body"), EMBED.items())
def test_prompts_mean_the_same_in_every_route(served, path, body):
    client = served("vectors")
    case = next(case for case in CASES if case.path == path and case.model == "vectors")
    whole = {} if path != "/embed" else {"normalize_embeddings": True}
    whole |= {"output_value": "token_embeddings"} if path == "/embed_all" else {}
    for changes, expected in (
            ({"prompt_name": "query"}, client.model.encode(TEXTS, prompt_name="query", **whole)),
            ({"input_type": "search_query"}, client.model.encode_query(TEXTS, **whole)),
            ({"input_type": "search_document"}, client.model.encode_document(TEXTS, **whole)),
            ({"input_type": "clustering"}, client.model.encode(TEXTS, prompt_name="clustering", **whole)),
            ({"input_type": "classification"}, client.model.encode(TEXTS, prompt="", **whole))):
        found = result(case, client.post(path, body | changes).data)
        found = [row["embedding"] for row in found["data"]] if path == "/v1/embeddings" else found
        found = found["float"] if path == "/v2/embed" else found
        assert same(found, list(expected)), changes
    assert client.post(path, body | {"truncation_direction": "Left", "truncate": False}).status == 200


def part(text):
    return {"type": "text", "text": text}


def test_a_text_may_come_in_parts(served):
    """As Cohere and llama-server take it; the parts are joined as they are."""
    vectors, ranks = served("vectors"), served("bert_pairs")
    whole = vectors.post("/v1/embeddings", {"input": ["the cat sat", "a dog"]}).data
    content = {"content": [part("the cat"), part(" sat")]}
    assert vectors.post("/v1/embeddings", {"input": [content, "a dog"]}).data == whole
    one = vectors.post("/v1/embeddings", {"input": content}).data
    assert one["data"] == whole["data"][:1]
    assert vectors.post("/v2/embed", {"texts": [content]}).data["embeddings"]["float"] == [
        row["embedding"] for row in one["data"]]
    assert vectors.post("/similarity", {"inputs": {"source_sentence": content, "sentences": [content]}}).status == 200
    assert ranks.post("/rerank", {"query": content, "documents": [content, "a dog"]}).data["results"] == ranks.post(
        "/rerank", {"query": "the cat sat", "documents": ["the cat sat", "a dog"]}).data["results"]


WRONG = {
    "vectors": [
        *((path, body | changes) for path, body in EMBED.items() for changes in (
            {"prompt_name": "x"}, {"input_type": "x"}, {"prompt_name": "query", "input_type": "query"},
            {"truncate": "x"}, {"truncate": "START"}, {"truncation_direction": "x"},
            {"truncation_direction": "Left", "truncate": True}, {"truncation_direction": "left", "truncate": "END"})),
        ("/v1/embeddings", {"input": "a", "dimensions": 13}), ("/embed", {"inputs": "a", "dimensions": 0}),
        ("/v2/embed", {"texts": ["a"], "output_dimension": 13}),
        ("/v1/embeddings", {"input": "a", "encoding_format": "hex"}),
        ("/v1/embeddings", {"input": "a", "encoding_format": 5}),
        ("/v2/embed", {"texts": ["a"], "embedding_types": ["float", "int8"]}),
        *(("/v1/embeddings", {"input": wrong}) for wrong in (
            {"content": [part("a"), {"type": "image_url", "image_url": {"url": "x"}}]},
            {"content": [{"type": "text", "text": 5}]}, {"content": [part("")]}, {"content": "a"},
            [part("a"), part("b")])),       # one text or two
        ("/v1/embeddings", {"input": "a", "user": {"content": [part("the cat")]}}),
    ],
    "bert_pairs": [
        ("/rerank", {"query": "a cat", "texts": TEXTS, "top_n": 0}), ("/score", {"text_1": TEXTS, "text_2": ["a"]}),
        ("/score", {"text_1": "a"}), ("/score", {"text_1": "a", "queries": "a", "text_2": "b"}),
    ],
}  # fmt: skip


@pytest.mark.parametrize("model", WRONG)
def test_wrong_options_are_named(served, model, snapshot):
    assert refusals(served(model), WRONG[model]) == snapshot


def test_ranks_of_texts_may_be_the_best_alone(served):
    client = served("bert_pairs")
    body = {"query": "a cat", "texts": [*TEXTS, "a"]}
    whole = client.post("/rerank", body).data
    for count in (1, 2, 99):
        assert client.post("/rerank", body | {"top_n": count}).data == whole[:count]


def test_raw_scores_are_logits(served):
    client = served("bert_pairs")
    raw = client.post("/rerank", {"query": "a", "texts": TEXTS, "raw_scores": True}).data
    logits = client.model.rank("a", TEXTS, activation_fn="identity")
    assert same([row["score"] for row in raw], [one["score"] for one in logits])
    assert len(client.post("/rerank", {"query": "a", "documents": [{"text": TEXTS[0]}, "b"], "top_n": 1}
                           ).data["results"]) == 1
    classes = served("bert_classify")
    rows = classes.post("/predict", {"inputs": [["cats purr"]]}).data
    for inputs, expected in (([{"text": "cats purr"}], rows), ({"text": "cats purr"}, rows[0])):
        assert classes.post("/predict", {"inputs": inputs}).data == expected
    empty = classes.post("/predict", {"inputs": ""})
    refused = classes.post("/predict", {"inputs": {"text": ""}})
    assert (refused.status, refused.data) == (empty.status, empty.data)
    raw = classes.post("/predict", {"inputs": ["a", "b"], "raw_scores": True}).data
    assert raw == [{"score": pytest.approx(one["score"]), "label": one["label"]}
                   for one in classes.model.classify([("a", "b")], top_k=None, function_to_apply="none")[0]]


def test_texts_of_two_lists_are_scored_in_pairs(served):
    client = served("bert_pairs")
    found = client.post("/score", {"queries": TEXTS, "documents": TEXTS[::-1]}).data["data"]
    assert same([one["score"] for one in found],
                list(client.model.predict(list(zip(TEXTS, TEXTS[::-1], strict=True)))))


def test_vectors_of_tokens_have_roles(served):
    client = served("late")
    for kind, expected in (("query", client.model.encode_query(TEXTS)),
                           ("document", client.model.encode_document(TEXTS))):
        assert same(client.post("/embed_all", {"inputs": TEXTS, "input_type": f"search_{kind}"}).data, list(expected))


def test_tokens_have_their_places(served):
    client = served("vectors")
    [row] = client.post("/tokenize", {"inputs": LONG, "prompt_name": "query"}).data
    assert len(row) == len(LONG.split()) + 4        # never cut, with the two words of the prompt
    assert row[3] == {"id": ids("the")[0], "text": "the", "special": False, "start": 8, "stop": 11}
    assert row[0] == {"id": 2, "text": "[CLS]", "special": True, "start": None, "stop": None}
    [row] = client.post("/tokenize", {"inputs": "the cat", "add_special_tokens": False}).data
    assert [one["text"] for one in row] == ["the", "cat"]
    decoded = client.post("/decode", {"ids": [2, *ids("the cat")], "skip_special_tokens": False})
    assert decoded.data == ["[CLS] the cat"]
    assert client.post("/tokenize", {"inputs": "a" * 1_048_577}).status == 413


def test_a_path_may_be_asked_for_and_is_not_shown(served):
    path = "/srv/models/tiny"
    with serving(served("vectors").model, silent_names=(path,)) as client:
        answers = [client.post("/v1/embeddings", {"input": "a", "model": path}), client.get("/v1/models"),
                   client.get(f"/v1/models/{path}"), client.get("/info"), client.get("/v1/models/x"),
                   client.post("/embed", {"inputs": "a", "model": "x"})]
        assert [answer.status for answer in answers] == [200, 200, 200, 200, 404, 404]
        assert answers[0].data["model"] == answers[2].data["id"] == "tiny"
        assert "/srv" not in str([answer.data for answer in answers])


def test_pages(served):
    client = served("vectors")
    [one, other] = client.get("/v1/models").data["data"]
    assert (one["id"], one["object"], other["id"]) == ("tiny", "model", "other name")
    assert client.get("/v1/models/tiny").data == one
    assert client.get("/v1/models/x").status == 404
    info = client.get("/info").data
    assert (info["max_input_length"], info["tasks"], info["prompts"]) == (12, ["embed", "tokens"], sorted(PROMPTS))
    assert served("bert_classify").get("/info").data["model_type"]["classifier"]["id2label"]["0"] == "dull"
    assert "reranker" in served("bert_pairs").get("/info").data["model_type"]
    assert client.get("/health").status == 200
    assert client.get("/x").status == 404
    assert (answer := client.get("/embed")).status == 405
    assert answer.headers["allow"] == "POST"


def test_labels_of_the_client(served, snapshot, monkeypatch):
    """The form is that of the client of huggingface_hub, whose fields may be null, and a string has commas."""
    client = served("nli")
    body = {"inputs": TEXTS[0], "parameters": {"candidate_labels": "good, a cat", "hypothesis_template": None,
                                               "multi_label": None}}
    assert client.post("/zero-shot", body).data == client.model.classify(
        TEXTS[0], candidate_labels=["good", "a cat"], top_k=None)
    wrong = [{"candidate_labels": []}, {"candidate_labels": ["a", "a"]}, {"candidate_labels": ["a", 1]}, {},
             {"candidate_labels": ["a"], "hypothesis_template": "it is"}, {"candidate_labels": ["a"], "truncate": "x"},
             {"candidate_labels": ["a"] * 1000, "hypothesis_template": "it is {}" + "." * 300},
             {"candidate_labels": ["a", "cat " * 100]}, {"candidate_labels": ["a"], "top_k": 1}]
    lines = refusals(client, [("/zero-shot", {"inputs": "a", "parameters": one}) for one in wrong]).splitlines()
    assert [line[-300:] for line in lines] == snapshot
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)     # it asks this server alone
    asked = InferenceClient().zero_shot_classification(
        TEXTS[0], ["good", "a cat"], model=f"http://127.0.0.1:{client.port}/zero-shot")
    assert [{"label": one.label, "score": one.score} for one in asked] == client.post("/zero-shot", body).data
    other = served("bert_classify").post("/zero-shot", body)
    assert other.status == 400
    assert "this one has dull, lively, neither" in other.data["error"]
