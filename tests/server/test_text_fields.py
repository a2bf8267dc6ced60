"""The table of fields: documents show all of it, and equal requests have equal ids."""

import re

import pytest

pytest.importorskip("msgspec")

from engine.server.refusals import Refusal
from engine.server.text_fields import CHAT, COMPLETION, form_of, id_of, known_fields

from ..tools.paths import ROOT

OPENAI = {
    "chat": "messages model audio frequency_penalty function_call functions logit_bias logprobs max_completion_tokens "
            "max_tokens metadata modalities moderation n parallel_tool_calls prediction presence_penalty "
            "prompt_cache_key prompt_cache_options prompt_cache_retention reasoning_effort response_format "
            "safety_identifier seed service_tier stop store stream_options temperature tool_choice tools top_logprobs "
            "top_p user verbosity web_search_options stream",
    "completions": "model prompt best_of echo frequency_penalty logit_bias logprobs max_tokens n presence_penalty seed "
                   "stop stream_options suffix temperature top_p user stream"}
"""The fields of openai 3.57, which `tests/server/test_clients.py` compares with the package."""


def test_every_field_of_openai_has_an_entry():
    for table, names in ((CHAT, OPENAI["chat"]), (COMPLETION, OPENAI["completions"])):
        assert set(names.split()) <= table.keys()
        for field in table.values():
            assert field.has_effect or not (field.setting or field.refusal)


def test_the_documents_have_every_field():
    text = (ROOT / "docs" / "server.md").read_text().partition("## Chats and completions")[2].partition("\n## ")[0]
    shown = set(re.findall(r"`(\w+)`", text))
    assert {*CHAT, *COMPLETION} - shown - {"model"} == set()
    accepted = next(line for line in text.splitlines() if line.endswith("accepted without effect |"))
    assert set(re.findall(r"`(\w+)`", accepted)) == {
        name for name, field in (CHAT | COMPLETION).items() if not field.has_effect}
    refused = "".join(line for line in text.splitlines() if "| refused" in line)
    assert set(re.findall(r"`(\w+)`", refused)) >= {
        name for name, field in (CHAT | COMPLETION).items() if field.refusal and name != "prompt_logprobs"}


def test_what_is_refused_and_what_is_left_out():
    known, others = known_fields({"n": None, "tools": [], "tool_choice": "auto", "x": 1, "temperature": 1}, CHAT)
    assert (known, others) == ({"tools": [], "tool_choice": "auto", "temperature": 1}, ["x"])
    for name, value in (("tools", [1]), ("tool_choice", "required"), ("modalities", ["text", "audio"]),
                        ("response_format", {"type": "json_schema"}), ("best_of", 2), ("web_search_options", {})):
        with pytest.raises(Refusal) as error:
            known_fields({name: value}, CHAT)
        assert error.value.field == name
    assert form_of("Any", CHAT)().temperature is None


def test_an_id_is_that_of_the_request_the_seed_and_the_model():
    asked = {"prompt": "a", "n": 2}
    same = [id_of("cmpl", asked | more, 5, "fp") for more in ({}, {"stream": True}, {"seed": 5}, {"user": "u"})]
    assert len(set(same)) == 1
    assert re.fullmatch(r"cmpl-[0-9a-f]{29}", same[0])
    others = {id_of("cmpl", asked, 6, "fp"), id_of("cmpl", asked, 5, "other"), id_of("chatcmpl", asked, 5, "fp"),
              id_of("cmpl", asked | {"n": 3}, 5, "fp"), id_of("cmpl", {"n": 2, "prompt": "b"}, 5, "fp")}
    assert len(others | set(same)) == 6
    assert id_of("cmpl", {"n": 2, "prompt": "a"}, 5, "fp") == same[0]
