"""Chats and completions over real sockets: each body is that of the library, streamed or not."""

import socket
from collections import Counter
from concurrent.futures import CancelledError

import numpy as np
import pytest

from engine import Generator
from engine.base.errors import Closing

from ..tools.encoders import engine_of
from ..tools.generators import translator
from ..tools.serving import serving
from ..tools.text_models import HELLO, plain_settings, reasoning_model, text_model
from ..tools.threads import begin, together, wait_for
from ..tools.tiny_models import random_model
from ..tools.tiny_text import tiny_text

pytest.importorskip("uvicorn")
pytest.importorskip("jinja2")

from engine.server import app
from engine.server.protocol import Protocol
from engine.server.requests import Answer
from engine.server.text_service import TextService

from .bodies import CHAT, COMPLETE, Gate, events, joined, leave, post_once, whole, without_time


@pytest.fixture(scope="module")
def client():
    with serving(text_model()) as client:
        yield client


CASES = {
    "greedy": ({"temperature": 0, "max_tokens": 6}, {"temperature": 0, "max_new_tokens": 6}),
    "seed": ({"seed": 5, "max_completion_tokens": 9}, {"max_new_tokens": 9}),
    "settings": ({"seed": 5, "temperature": 0.7, "top_p": 0.9, "top_k": 20, "min_p": 0.01, "max_tokens": 12,
                  "presence_penalty": 0.5, "frequency_penalty": 0.25, "repetition_penalty": 1.1, "min_tokens": 3,
                  "ignore_eos": True, "logit_bias": {"70": 4, "a": -3}},
                 {"temperature": 0.7, "top_p": 0.9, "top_k": 20, "min_p": 0.01, "max_new_tokens": 12,
                  "presence_penalty": 0.5, "frequency_penalty": 0.25, "repetition_penalty": 1.1, "min_new_tokens": 3,
                  "ignore_eos": True, "logit_bias": {70: 4, "a": -3}}),
    "stop": ({"seed": 2, "logit_bias": {"70": 50, "71": 50}, "stop": ["gfg", "no"], "max_tokens": 40},
             {"logit_bias": {70: 50, 71: 50}, "stop_strings": ["gfg", "no"], "max_new_tokens": 40}),
    "several": ({"seed": 3, "n": 3, "max_tokens": 5}, {"num_return_sequences": 3, "max_new_tokens": 5}),
    "whole context": ({"seed": 7, "logit_bias": {"258": -100}}, {"logit_bias": {258: -100}}),
}


@pytest.mark.parametrize("name", CASES)
def test_a_body_is_what_the_library_says_and_the_stream_of_it(client, name):
    given, settings = CASES[name]
    settings = plain_settings(given.get("seed", 0), **settings)
    if "max_new_tokens" in settings:
        del settings["max_length"]
    for path, asked, result in (
            (CHAT, {"messages": HELLO}, lambda: client.model.chat(HELLO, **settings)),
            (COMPLETE, {"prompt": "the cat"}, lambda: client.model.generate("the cat", **settings))):
        found = client.post(path, asked | given)
        assert found.status == 200, found.data
        assert found.headers["x-engine-seed"] == str(given.get("seed", 0))
        expected = result()
        expected = expected if isinstance(expected, list) else [expected]
        assert [one["text"] for one in whole(found.data)["choices"].values()] == [one.text for one in expected]
        assert [one["finish_reason"] for one in found.data["choices"]] == [one.finish_reason for one in expected]
        new = sum(len(one.ids) + one.ended for one in expected)
        usage = found.data["usage"]
        assert usage["completion_tokens"] == new == usage["total_tokens"] - usage["prompt_tokens"]
        stream = client.post(path, asked | given | {"stream": True, "stream_options": {"include_usage": True}})
        assert stream.headers["content-type"] == "text/event-stream"
        all_events, done = events(stream.data)
        assert all_events.pop()["usage"] == usage
        assert all(event["usage"] is None for event in all_events)
        assert {**joined((all_events, done))} == whole(found.data)


@pytest.mark.parametrize(("path", "asked"), [
    (CHAT, {"messages": HELLO, "logprobs": True, "top_logprobs": 2, "seed": 1, "max_tokens": 8}),
    (COMPLETE, {"prompt": ["the cat", "a"], "logprobs": 1, "seed": 1, "max_tokens": 5, "n": 2}),
    (COMPLETE, {"prompt": [70, 71, 72], "logprobs": 0, "seed": 1, "max_tokens": 5, "echo": True}),
    (COMPLETE, {"prompt": "the cat", "logprobs": 2, "echo": True, "max_tokens": 0, "seed": 1}),
    (COMPLETE, {"prompt": [[70], [71, 72]], "prompt_logprobs": 1, "max_tokens": 2, "seed": 1})])
def test_log_probabilities_of_both_forms(client, path, asked):
    body = client.post(path, asked)
    assert body.status == 200, body.data
    assert joined(events(client.post(path, asked | {"stream": True}).data)) == whole(body.data)
    choice = body.data["choices"][0]
    if path == CHAT:
        first = choice["logprobs"]["content"][0]
        assert [bytes(one["bytes"]) for one in choice["logprobs"]["content"]]
        result = client.model.chat(HELLO, **plain_settings(1, max_new_tokens=8, max_length=None, logprobs=2)).result
        assert [first["logprob"], *(top["logprob"] for top in first["top_logprobs"])] == [
            result.logprobs[0].logprob, *(top.logprob for top in result.logprobs[0].top)]
    elif asked.get("echo"):
        ids = asked["prompt"] if isinstance(asked["prompt"], list) else client.model.tokenizer.encode("the cat")
        scored = client.model.score([ids])[0].log_probabilities.tolist()
        assert choice["logprobs"]["token_logprobs"][: len(ids)] == [None, *scored]
        assert choice["text"].startswith(client.model.tokenizer.decode(ids))
    elif "prompt_logprobs" in asked:
        told = body.data["choices"][1 * 1]["prompt_logprobs"]
        assert told[0] is None
        assert told[1]["72"]["logprob"] == client.model.score([[71, 72]])[0].log_probabilities[0]


@pytest.mark.parametrize(("given", "same"), [
    ({"n_predict": 3}, {"max_tokens": 3}), ({"n_predict": -1}, {}),
    ({"repeat_penalty": 1.3}, {"repetition_penalty": 1.3})])
def test_names_of_llama_server(client, given, same):
    asked = {"prompt": "the cat", "seed": 3}
    found, expected = (client.post(COMPLETE, asked | fields) for fields in (given, same))
    assert found.data["choices"] == expected.data["choices"]
    assert "x-engine-ignored" not in found.headers


def test_who_asks_twice_gets_two_texts_and_who_sends_the_seed_gets_the_same_body(client):
    asked = {"messages": HELLO, "max_tokens": 12, "logit_bias": {"258": -100}}
    first, second = (client.post(CHAT, asked) for _ in range(2))
    assert first.data["choices"] != second.data["choices"]
    assert first.data["id"] != second.data["id"]
    again = client.post(CHAT, asked | {"seed": int(first.headers["x-engine-seed"])})
    assert without_time(again.data) == without_time(first.data)
    greedy = [client.post(CHAT, asked | {"temperature": 0}) for _ in range(2)]
    assert without_time(greedy[0].data) == without_time(greedy[1].data)
    assert greedy[0].headers["x-engine-seed"] == "0"
    assert first.data["system_fingerprint"] == greedy[0].data["system_fingerprint"]


def test_settings_of_the_folder_hold_where_a_request_says_nothing():
    with serving(text_model(settings={"temperature": 0.3, "top_k": 7, "top_p": 0.8, "max_new_tokens": 4})) as client:
        found = client.post(CHAT, {"messages": HELLO, "seed": 4}).data
        expected = client.model.chat(HELLO, do_sample=True, seed=4, max_length=301)
        assert found["choices"][0]["message"]["content"] == expected.text
        assert found["usage"]["completion_tokens"] > 4
        expected = client.model.chat(HELLO, do_sample=True, seed=4, temperature=1.0, top_k=0, max_new_tokens=6)
        found = client.post(CHAT, {"messages": HELLO, "seed": 4, "temperature": 1, "top_k": -1, "max_tokens": 6}).data
        assert found["choices"][0]["message"]["content"] == expected.text


def test_reasoning_has_a_field_of_its_own():
    with serving(reasoning_model()) as client:
        refused = client.post(CHAT, {"messages": [{"role": "system", "content": "a"}]})
        assert (refused.status, refused.data["error"]["param"]) == (400, "messages")
        assert "No user query found" in refused.data["error"]["message"]
        marker = client.model.tokenizer.token_id("</think>")
        for bias, part, thought in (({}, "reasoning_content", 6), ({str(marker): 100}, "content", 1)):
            asked = {"messages": HELLO, "max_tokens": 6, "seed": 1, "logit_bias": {"258": -100} | bias}
            body = client.post(CHAT, asked).data
            message = body["choices"][0]["message"]
            if part == "content":       # the marker again and again: all of them but the first are text
                assert message == {"role": "assistant", "content": "</think>" * 5, "refusal": None}
            else:
                assert message["content"] == ""
                assert message["reasoning_content"]
            assert body["usage"]["completion_tokens_details"] == {"reasoning_tokens": thought}
            stream = client.post(CHAT, asked | {"stream": True, "stream_options": {"include_usage": True}}).data
            found, done = events(stream)
            assert found.pop()["usage"] == body["usage"]
            assert joined((found, done)) == whole(body)


WRONG = {
    "no messages": (CHAT, {}, 400, "messages", None),
    "no message": (CHAT, {"messages": []}, 400, "messages", None),
    "a wrong role": (CHAT, {"messages": [{"role": 5, "content": "a"}]}, 400, "messages[0]", None),
    "no content": (CHAT, {"messages": [*HELLO, {"role": "user"}]}, 400, "messages[1]", None),
    "an image": (CHAT, {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {
        "type": "image_url", "image_url": {"url": "x"}}]}]}, 400, "messages[0].content[1]", None),
    "half a character": (CHAT, {"messages": [{"role": "user", "content": "\ud800"}]}, 400, "messages[0]", None),
    "tools": (CHAT, {"messages": HELLO, "tools": [{"type": "function"}]}, 400, "tools", None),
    "a schema": (CHAT, {"messages": HELLO, "response_format": {"type": "json_object"}}, 400, "response_format", None),
    "a long prompt": (COMPLETE, {"prompt": "a " * 400}, 400, "prompt", "context_length_exceeded"),
    "a long chat": (CHAT, {"messages": [{"role": "user", "content": "a " * 400}]}, 400, "messages",
                    "context_length_exceeded"),
    "a long answer": (COMPLETE, {"prompt": ["a", "b"], "max_tokens": 400}, 400, "prompt[0]", "context_length_exceeded"),
    "wrong ids": (COMPLETE, {"prompt": [1, 400]}, 400, "prompt", None),
    "no prompt": (COMPLETE, {}, 400, "prompt", None),
    "an empty list": (COMPLETE, {"prompt": []}, 400, "prompt", None),
    "no new tokens": (COMPLETE, {"prompt": "a", "max_tokens": 0}, 400, "max_tokens", None),
    "no predicted tokens": (COMPLETE, {"prompt": "a", "n_predict": 0}, 400, "n_predict", None),
    "a chat without new tokens": (CHAT, {"messages": HELLO, "max_completion_tokens": 0}, 400, "max_completion_tokens",
                                  None),
    "a suffix": (COMPLETE, {"prompt": "a", "suffix": "b"}, 400, "suffix", None),
    "a wrong type": (COMPLETE, {"prompt": "a", "temperature": "hot"}, 400, "temperature", None),
    "a wrong value": (COMPLETE, {"prompt": "a", "max_tokens": -1}, 400, "max_tokens", None),
    "a wrong stop": (COMPLETE, {"prompt": "a", "stop": [""]}, 400, "stop", None),
    "a wrong seed": (COMPLETE, {"prompt": "a", "seed": -1}, 400, "seed", None),
    "a wrong bias": (COMPLETE, {"prompt": "a", "logit_bias": {"70": 101}}, 400, "logit_bias", None),
    "a bias of no token": (COMPLETE, {"prompt": "a", "logit_bias": {"400": 1}}, 400, "logit_bias", None),
    "too many answers": (COMPLETE, {"prompt": ["a"] * 3, "n": 60}, 400, "n", None),
    "many logprobs": (COMPLETE, {"prompt": "a", "logprobs": 21}, 400, "logprobs", None),
    "tops alone": (CHAT, {"messages": HELLO, "top_logprobs": 2}, 400, "top_logprobs", None),
    "a wrong option": (CHAT, {"messages": HELLO, "stream": True, "stream_options": {"include_usage": 2}}, 400,
                       "stream_options.include_usage", None),
    "another model": (CHAT, {"messages": HELLO, "model": "gpt-4"}, 404, "model", "model_not_found"),
    "vectors": ("/v1/embeddings", {"input": "a"}, 400, None, None),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_said_with_its_field(client, name):
    path, asked, status, param, code = WRONG[name]
    for stream in ({}, {"stream": True}) if path != "/v1/embeddings" else ({},):
        found = client.post(path, stream | asked)
        error = found.data["error"]
        assert (found.status, error["param"], error["code"]) == (status, param, code), error
        assert "max_new_tokens" not in error["message"]
        assert "num_return" not in error["message"]


def test_fields_that_are_not_known_are_ignored_and_named(client):
    asked = {"messages": HELLO, "max_tokens": 1, "temperature": 0, "user": "u", "store": None, "tools": [],
             "response_format": {"type": "text"}, "new": 1, "x\r\ny: z": 2}
    found = client.post(CHAT, asked)
    assert found.status == 200
    assert found.headers["x-engine-ignored"] == "new, x??y:?z"


def test_a_model_without_a_template_and_one_with_an_encoder():
    with serving(Generator(translator(tiny_text()), threads=1)) as client:
        found = client.post(CHAT, {"messages": HELLO})
        assert found.status == 400
        assert "no chat template" in found.data["error"]["message"] or "/v1/chat" in found.data["error"]["message"]
        found = client.post(COMPLETE, {"prompt": "the cat"})
        assert found.data["choices"][0]["text"] == client.model.generate("the cat", max_length=90).text
        assert client.post(COMPLETE, {"prompt": "the cat", "echo": True}).status == 400
        sampled = client.post(COMPLETE, {"prompt": "the cat", "temperature": 1, "seed": 3})
        assert sampled.data["choices"][0]["text"] == client.model.generate(
            "the cat", **plain_settings(3, max_length=90)).text
    with serving(text_model({})) as client:
        found = client.post(CHAT, {"messages": HELLO})
        assert (found.status, found.data["error"]["param"]) == (400, "messages")
        assert "no chat template" in found.data["error"]["message"]


def test_tokens_and_templates(client):
    model = client.model
    ids = model.tokenizer.encode("the cat")
    assert client.post("/tokenize", {"prompt": "the cat", "return_token_strs": True}).data == {
        "count": len(ids), "max_model_len": 300, "tokens": ids,
        "token_strs": [model.tokenizer.token(one) for one in ids]}
    prompt = model.apply_chat_template(HELLO)
    assert client.post("/tokenize", {"messages": HELLO}).data["tokens"] == model.apply_chat_template(
        HELLO, tokenize=True)
    assert client.post("/apply-template", {"messages": HELLO, "temperature": 1}).data == {"prompt": prompt}
    plain = client.post("/tokenize", {"content": "the <s>é"}).data["tokens"]
    assert plain == model.tokenizer.encode("the <s>é", add_special_tokens=False)
    pieces = client.post("/tokenize", {"content": "<s>é", "with_pieces": True, "parse_special": False,
                                       "add_special": True}).data["tokens"]
    assert [one["id"] for one in pieces] == model.tokenizer.encode_plain("<s>é")
    assert pieces[-1]["piece"] in ([0xA9], "é")
    assert client.post("/detokenize", {"tokens": plain}).data == {"prompt": "the <s>é", "content": "the <s>é"}
    for path, asked, param in (("/apply-template", {"messages": [{"role": "user"}]}, "messages[0]"),
                               ("/apply-template", {}, "messages"), ("/detokenize", {"tokens": ["a"]}, "tokens[0]"),
                               ("/tokenize", {"prompt": "a" * 300_000}, "prompt")):
        assert client.post(path, asked).data["error"]["param"] == param


@pytest.mark.parametrize("kind", ["stream", "body", "prompt", "queue"])
def test_a_client_that_leaves_frees_its_rows_within_a_step(monkeypatch, kind):
    """In a stream, in an answer that is not streamed, while its prompt is read, and while it waits to enter."""
    model = text_model(max_rows=2 if kind == "queue" else 64)
    queue = model.prepared.queue
    alone = model.chat(HELLO, **plain_settings(1, max_new_tokens=60, max_length=None, ignore_eos=True)).text
    with serving(model) as client:
        gate = Gate(model, monkeypatch)
        body = {"messages": HELLO, "max_tokens": 60, "seed": 1, "ignore_eos": True}
        other = begin(lambda: post_once(client.port, CHAT, body))
        wait_for(lambda: queue.counts[0] == 1)
        gate.let(3)
        wait_for(lambda: gate.steps == 3)
        long = {"messages": [{"role": "user", "content": "b" * 200}]} if kind == "prompt" else {}
        asked = body | {"seed": 2, "stream": kind == "stream", "n": 2 if kind == "queue" else 1} | long
        connection = leave(client.port, asked)
        wait_for(lambda: sum(queue.counts) >= 2 or queue._arrived)
        gate.let(1 if kind != "stream" else 8)
        wait_for(lambda: gate.steps == (4 if kind != "stream" else 11))
        if kind == "stream":
            assert b"data: " in connection.recv(2**16)
        connection.close()

        def stays():        # the works that nobody has cancelled
            return {*queue._open.values(), *queue._arrived} - {getattr(one, "entry", one) for one in [*queue._departed]}

        wait_for(lambda: len(stays()) == 1)
        steps = gate.steps
        gate.let(2)
        wait_for(lambda: gate.steps == steps + 2)
        assert len(queue._active) == 1
        assert queue.counts == (1, 0)
        gate.let(1000)
        assert other.result(60).data["choices"][0]["message"]["content"] == alone
        wait_for(lambda: client.served.service.statistics().waiting_requests == 0)
        assert client.served.service.memory.used == 0


def test_a_client_that_leaves_in_the_moment_in_which_its_stream_begins(monkeypatch):
    until = app.Exchange._until

    async def late(self, future, deadline):
        answer = await until(self, future, deadline)
        if isinstance(answer, Answer):
            raise app.Gone
        return answer

    model = text_model()
    with serving(model) as client:
        gate = Gate(model, monkeypatch)
        monkeypatch.setattr(app.Exchange, "_until", late)
        with leave(client.port, {"messages": HELLO, "max_tokens": 200, "ignore_eos": True, "stream": True}):
            gate.let(1)
            wait_for(lambda: model.prepared.queue._departed or client.served.service.statistics().cancelled == 1)
            gate.let(5)
            wait_for(lambda: client.served.service.statistics().cancelled == 1)
            wait_for(lambda: model.prepared.queue.counts == (0, 0))     # its thread ends it in its next turn
            assert gate.steps < 5
            gate.let(1000)


def test_an_error_of_one_request_is_its_own_also_in_a_stream(monkeypatch):
    model = text_model()
    bad = {"messages": HELLO, "seed": 1, "max_tokens": 30, "ignore_eos": True, "logit_bias": {"90": 100}}
    good = {"messages": HELLO, "seed": 1, "max_tokens": 20, "logit_bias": {"90": -100}}
    with serving(model) as client:
        alone = client.post(CHAT, good)
        gate = Gate(model, monkeypatch, fails=90)
        gate.let(10_000)
        bodies = together([lambda: post_once(client.port, CHAT, good),
                           lambda: post_once(client.port, CHAT, bad),
                           lambda: post_once(client.port, CHAT, bad | {"stream": True})])
        assert without_time(bodies[0].data) == without_time(alone.data)
        assert bodies[1].status == 500
        assert bodies[1].headers["x-request-id"] in bodies[1].data["error"]["message"]
        found, done = events(bodies[2].data)
        assert bodies[2].status == 200
        assert not done
        assert found[-1]["error"]["type"] == "server_error"
        assert bodies[2].headers["x-request-id"] in found[-1]["error"]["message"]
        assert found[0]["choices"][0]["delta"]["role"] == "assistant"


@pytest.mark.parametrize("asked", [{"n": 12}, {"prompt": ["the cat"] * 12}, {"n": 4, "prompt": ["a", "b", "c"]}])
@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_comes_while_many_samples_of_another_request_are_written(monkeypatch, asked, stream):
    """Neither several samples nor several prompts keep all rows to their end, and their bytes are those alone."""
    model = text_model(max_rows=4)
    body = {"prompt": "the cat", "max_tokens": 60, "seed": 3, "ignore_eos": True, "stream": stream} | asked
    with serving(model) as client:
        alone = client.post(COMPLETE, body).data
        gate = Gate(model, monkeypatch)
        large = begin(lambda: post_once(client.port, COMPLETE, body))
        wait_for(lambda: sum(model.prepared.queue.counts) == 12)
        small = begin(lambda: post_once(client.port, COMPLETE, {"prompt": "a dog", "max_tokens": 2, "seed": 1}))
        wait_for(lambda: sum(model.prepared.queue.counts) == 13)
        gate.let(30)        # in which no sample ends
        assert small.result(60).status == 200
        gate.let(10_000)
        found = large.result(60)
        if stream:
            assert joined(events(found.data)) == joined(events(alone))
        else:
            assert without_time(found.data) == without_time(alone)


def test_an_error_of_one_sample_is_that_of_its_stream(monkeypatch):
    """It cancels the other samples, whose own errors say nothing."""
    model = text_model()
    texts = [one.ids for one in model.generate("the cat", **plain_settings(
        1, num_return_sequences=4, max_new_tokens=9, max_length=None, ignore_eos=True))]
    fails = next(id for id in texts[3][1:8] if all(id not in ids for ids in texts[:3]))
    with serving(model) as client:
        Gate(model, monkeypatch, fails=fails).let(10_000)
        body = {"prompt": "the cat", "n": 4, "max_tokens": 9, "seed": 1, "ignore_eos": True}
        for stream in (False, True):
            found = client.post(COMPLETE, body | {"stream": stream})
            error = events(found.data)[0][-1]["error"] if stream else found.data["error"]
            assert (error["type"], found.headers["x-request-id"] in error["message"]) == ("server_error", True)
        wait_for(lambda: model.prepared.queue.counts == (0, 0))


def test_a_stream_that_waits_is_kept_open_by_comments_and_ends_at_its_deadline(monkeypatch):
    model = text_model()
    with serving(model) as client:
        gate = Gate(model, monkeypatch)
        monkeypatch.setattr(app, "COMMENT_SECONDS", 0.05)
        connection = leave(client.port, {"messages": HELLO, "max_tokens": 3, "stream": True, "seed": 1})
        found = b""
        while found.count(b": the server is at work\n\n") < 2:
            found += connection.recv(2**16)
        assert b"data:" not in found
        asked = {"messages": HELLO, "stream": True}
        client.served.service.load.forget_rates()       # with the rates of a slow machine it would be refused at once
        assert client.post(CHAT, asked, x_request_timeout=0.02).status == 504
        for seconds in (0.5, 5, 50):        # a slow machine needs more of them until the first comment
            answer = client.post(CHAT, asked, x_request_timeout=seconds)
            if answer.status == 200:
                break
        late, done = events(answer.data)        # behind some comments
        assert ("error" in late[-1], done) == (True, False)
        gate.let()
        while b"data:" not in found:
            found += connection.recv(2**16)
        while found.count(b": the server is at work\n\n", found.index(b"data:")) < 2:       # between events, too
            found += connection.recv(2**16)
        gate.let(100)
        while b"[DONE]" not in found:
            found += connection.recv(2**16)
        connection.close()


def test_a_client_that_reads_slowly_gets_the_whole_stream(client, monkeypatch):
    """What its connection has no room for is sent as it reads, with the bytes that a quick client gets."""
    body = {"messages": HELLO, "max_tokens": 200, "ignore_eos": True, "seed": 1, "stream": True, "logprobs": True,
            "top_logprobs": 20}
    quick, done = events(client.post(CHAT, body).data)
    assert done
    made, write = Protocol.connection_made, Protocol.write_chunk
    wrote = Counter()

    def connection_made(protocol, transport):
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        transport.set_write_buffer_limits(0)
        made(protocol, transport)

    def write_chunk(protocol, data):
        found = write(protocol, data)
        wrote[found] += 1
        return found

    monkeypatch.setattr(Protocol, "connection_made", connection_made)
    monkeypatch.setattr(Protocol, "write_chunk", write_chunk)
    connection = leave(client.port, body)
    wait_for(lambda: wrote[False])      # and it waits for room since
    found = b""
    while not found.endswith(b"0\r\n\r\n"):
        found += connection.recv(2**12)
    connection.close()
    parts = found.partition(b"\r\n\r\n")[2].split(b"\r\n")
    slow, done = events(b"".join(parts[1::2]))
    assert done
    assert [without_time(one) for one in slow] == [without_time(one) for one in quick]


def test_a_request_that_would_wait_too_long_is_refused(monkeypatch):
    model = text_model(max_rows=1)
    service = TextService(model, max_wait=0.5)
    with serving(model, service=service) as client:
        gate = Gate(model, monkeypatch)
        body = {"messages": HELLO, "max_tokens": 200, "seed": 1, "ignore_eos": True}
        service.load.forget_rates()
        service.load.measured(1, 0, 0.1)
        waiting = leave(client.port, body)
        wait_for(lambda: service.load.seconds > 0)
        found = client.post(CHAT, body)
        assert found.status == 429
        assert int(found.headers["retry-after"]) > 0
        assert found.data["error"]["code"] == "rate_limit_exceeded"
        gate.let(10_000)
        waiting.close()


def test_a_server_that_stops_ends_its_streams(monkeypatch):
    model = text_model()
    with serving(model) as client:
        asked = {"messages": HELLO, "max_tokens": 250, "seed": 1, "ignore_eos": True, "stream": True}
        alone = events(client.post(CHAT, asked).data)
        gate = Gate(model, monkeypatch)
        found = [begin(lambda: post_once(client.port, CHAT, asked)) for _ in range(3)]
        wait_for(lambda: sum(model.prepared.queue.counts) == 3)
        client.server.stop()
        gate.let(10_000)
        assert [joined(events(one.result(60).data)) for one in found] == [joined(alone)] * 3


def test_a_service_that_is_closed_without_its_answers():
    service = TextService(text_model())
    futures = [service.submit("generate", [[70] * 20], {"max_new_tokens": 200, "ignore_eos": True}) for _ in range(3)]
    service.close(drain=False)
    for future in futures:
        with pytest.raises((Closing, CancelledError)):
            future.result(60)
    with pytest.raises(Closing):
        service.submit("generate", [[70]]).result(60)


def test_an_embedder_beside_a_chat_model():
    text, vectors = text_model(), engine_of(random_model(tiny_text()), threads=1)
    with serving(text, beside=[vectors]) as client:
        expected = text.chat(HELLO, **plain_settings(1, max_new_tokens=20, max_length=None)).text
        asked = {"messages": HELLO, "seed": 1, "max_tokens": 20}

        def both(i):
            if i % 2:
                assert post_once(client.port, CHAT, asked).data["choices"][0]["message"]["content"] == expected
                return
            for name in ({}, {"model": "beside 0"}):
                found = post_once(client.port, "/embed", {"inputs": "the cat sat", "normalize": False} | name)
                assert np.array_equal(np.array(found.data, np.float32), vectors.encode(["the cat sat"]))

        together([lambda i=i: both(i) for i in range(8)])
        assert client.post("/embed", {"inputs": "a", "model": "tiny"}).status == 400
        assert client.post(CHAT, asked | {"model": "beside 0"}).status == 400
        models = {one["id"]: one for one in client.get("/v1/models").data["data"]}
        assert [(name, one["kind"], one["max_model_len"]) for name, one in models.items()] == [
            ("tiny", "generate", 300), ("other name", "generate", 300), ("beside 0", "encode", vectors.max_seq_length)]
        assert client.get("/v1/models/beside%200").data["owned_by"] == "encoder-engine"
        page = client.get("/metrics").data.decode()
        for line in ("engine_new_tokens_total", "engine_batches_total", "te_generate_success", "te_embed_success",
                     "engine_first_token_seconds_count", "engine_token_gap_seconds_bucket", "engine_step_rows_count",
                     "engine_prompt_tokens_found_total", "engine_prompt_tokens_read_total", "engine_cache_tokens",
                     "engine_gave_way_total"):
            assert f"\n{line}" in page
        assert client.get("/info").data["model_type"] == {"generator": {
            "fingerprint": client.served.service.fingerprint}}


def test_keys_share_nothing_of_what_was_read():
    model = text_model()
    with serving(model, keys=["one", "two"]) as client:
        asked = {"prompt": [70] * 64, "max_tokens": 1, "temperature": 0}
        found = []
        for key in ("one", "two", "one"):
            assert client.post(COMPLETE, asked, authorization=f"Bearer {key}").status == 200
            found.append(model.statistics().found_tokens)
        assert found[0] == found[1] == 0 < found[2]
