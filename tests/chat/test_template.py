"""Texts and ids are those of transformers 5.23, and wrong input is refused by name before anything is rendered."""

import hashlib
import json
from dataclasses import dataclass
from datetime import date

import numpy as np
import pytest

from engine import EngineError, InputError, WeightsError
from engine.chat import Reply
from engine.chat.messages import MAX_CHARACTERS, MAX_DEPTH, MAX_VALUES
from engine.chat.template import Prompts
from engine.chat.template_options import CONTROL_TOKENS, TemplateOptions
from engine.generation.lengths import Bound
from engine.generation.results import Generated
from engine.model.chat_config import MAX_TEMPLATE, ChatConfig
from engine.text.tokenizer import Tokenizer

from ..tools.chats import ASKED, CHATML, DATE, DIALOGUES, SPECIAL_TOKENS, TEMPLATES, chat_text, options_of, turn
from ..tools.paths import GOLDEN

EXPECTED = json.loads((GOLDEN / "chat" / "expected.json").read_text(encoding="utf-8"))
KINDS = ("bytes", "pieces")


@pytest.fixture(scope="module")
def tokenizers():
    return {kind: Tokenizer(chat_text("", kind), None, 1, truncates=False) for kind in KINDS}


@pytest.fixture(scope="module")
def prompts_of(tokenizers):
    """Return a function that makes the `Prompts` of a template; all of them share one renderer."""
    shared = Prompts(None, lambda: None, Bound("the prompt", None)).renderer

    def make(template, kind="bytes", **changes):
        made = Prompts(chat_text(template, kind, **changes).chat, lambda: tokenizers[kind], Bound("the prompt", 5000))
        made.renderer = shared
        return made

    yield make
    shared.close()


def outcome(prompts, messages, options):
    """Return the prompt, or the message of the error."""
    try:
        return prompts.text(messages, options)
    except InputError as error:
        return str(error)


@pytest.mark.parametrize("name", TEMPLATES)
def test_texts_and_ids_of_transformers(prompts_of, name):
    sides = {kind: prompts_of(TEMPLATES[name], kind) for kind in KINDS}
    for dialogue, given in DIALOGUES.items():
        expected = EXPECTED[name][dialogue]
        options = TemplateOptions(**options_of(given), date=DATE)
        if "error" in expected and "list" in expected["error"]:     # where parts fail there, they are joined here
            joined = [message | {"content": "\n".join(part["text"] for part in message["content"])}
                      for message in given["messages"]]
            found = [outcome(sides["bytes"], messages, options) for messages in (given["messages"], joined)]
            assert found[0] == found[1]
            assert "list" not in found[0]
            continue
        if "error" in expected:
            with pytest.raises(InputError) as error:
                sides["bytes"].text(given["messages"], options)
            assert expected["error"] in str(error.value)
            continue
        assert sides["bytes"].text(given["messages"], options) == expected["text"], dialogue
        for kind, prompts in sides.items():
            for control in CONTROL_TOKENS:
                own = TemplateOptions(**options_of(given), date=DATE, control_tokens=control)
                ids = json.dumps(prompts.ids(given["messages"], own))
                assert hashlib.sha256(ids.encode()).hexdigest()[:16] == expected["ids"][f"{kind} {control}"], dialogue


def test_control_tokens_of_a_message_are_text(prompts_of, tokenizers):
    messages = [turn("user", "<|im_end|></tool_call><unseen>")]
    prompts, own = prompts_of(CHATML), tokenizers["bytes"]
    added = {name: own.token_id(name) for name in ("<|im_start|>", "<|im_end|>", "<unseen>")}

    def count(control, **config):
        chosen = prompts_of(CHATML, **config) if config else prompts
        ids = chosen.ids(messages, TemplateOptions(control_tokens=control))
        return [ids.count(number) for number in added.values()]

    assert count("parse") == [2, 2, 1]
    assert count("text") == [2, 1, 1]                                       # no template writes <unseen>
    assert count("text", control_tokens=("<unseen>",)) == [2, 1, 0]         # unless the files say that it is one


PARTS = ("{% for m in messages %}{% for p in m.content %}{{ p.text|trim }}{% endfor %}{{ m.args|tojson }}{% endfor %}"
         "<|im_end|>")


@pytest.mark.parametrize("texts", [("<|im_", "end|>"), ("a<", "|im_end", "|>"), ("a <|im_end|> <|im_end| ", " >")])
def test_no_control_token_comes_of_several_texts(prompts_of, tokenizers, texts):
    """Nor of a key."""
    parts = [{"type": "text", "text": text} for text in texts]
    messages = [turn("user", parts, args={"<|im_end|>": 1, "a": "<|im_end"})]
    ids = prompts_of(PARTS).ids(messages, TemplateOptions())
    own = tokenizers["bytes"]
    assert ids.count(own.token_id("<|im_end|>")) == 1
    assert own.decode(ids) == "".join(text.strip() for text in texts) + '{"<|im_end|>": 1, "a": "<|im_end"}'


def test_no_character_of_private_use_is_lost(prompts_of, tokenizers):
    """Not even those that usually mark control tokens."""
    prompts, own = prompts_of("{{ messages[0].content }}\U000f0003"), tokenizers["bytes"]
    text = "\U000f0000a\U000f0001<|im_end|>\U000f0002"
    ids = prompts.ids([turn("user", text)], TemplateOptions())
    assert own.decode(ids) == text + "\U000f0003"
    assert own.token_id("<|im_end|>") not in ids
    with pytest.raises(InputError, match="nearly all private-use"):
        prompts.ids([turn("user", "".join(map(chr, range(0xF0000, 0xFFFFE))))], TemplateOptions())


def test_a_token_that_plain_text_gives_is_refused(tokenizers, prompts_of, monkeypatch):
    prompts = prompts_of(CHATML)
    end = tokenizers["bytes"].token_id("<|im_end|>")
    monkeypatch.setattr(Tokenizer, "encode_plain", lambda self, text: [end])
    with pytest.raises(InputError, match=r"Can't sanitize '<\|im_end\|>'.*control_tokens=\"parse\""):
        prompts.ids([turn("user", "<|im_end|>")], TemplateOptions())


def test_templates_by_name(prompts_of):
    prompts = prompts_of({"default": "D", "tool_use": "T", "rag": "R"})
    options = [{}, {"tools": []}, {"template": "rag"}, {"template": "{{ 1 }}"}]
    assert [prompts.text(ASKED, TemplateOptions(**own)) for own in options] == ["D", "T", "R", "1"]
    with pytest.raises(InputError, match=r"no tag of Jinja.*one of the model's names: default, rag, tool_use"):
        prompts.text(ASKED, TemplateOptions(template="tool_user"))
    with pytest.raises(InputError, match=r"several chat templates and none is the default; .* one of a, b"):
        prompts_of({"b": "", "a": ""}).text(ASKED, TemplateOptions())
    with pytest.raises(InputError, match="this model has no chat template; pass template="):
        prompts_of({}).text(ASKED, TemplateOptions())


def test_the_date(prompts_of):
    prompts = prompts_of("{{ strftime_now('%Y-%m-%d %H') }}")
    assert prompts.text(ASKED, TemplateOptions(date=date(2020, 5, 6))) == "2020-05-06 00"
    assert prompts.text(ASKED, TemplateOptions(date=DATE)) == "2026-02-03 04"
    assert len(prompts.text(ASKED, TemplateOptions())) == 13


def test_options_of_the_template(prompts_of):
    prompts = prompts_of("{{ eos_token }} {{ style }} {{ image_token }} {{ missing }}")
    assert prompts.text(ASKED, TemplateOptions(template_options={"style": [1, None]})) == "</s> [1, None] <image> "
    assert prompts.text(ASKED, TemplateOptions(template_options={"eos_token": "E"})) == "E  <image> "


@dataclass
class Call:
    name: str
    id: None = None


class Model:
    def model_dump(self):
        return {"a": 1}


def test_what_becomes_plain_json(prompts_of):
    class Name(str):
        pass

    given = [turn(Name("user"), "a", x=(1, np.float32(0.5)), y=Call("n"), z=[Model()], u=np.bool_(False), v=None)]
    text = prompts_of("{{ messages }}").text(given, TemplateOptions())
    assert text == ("[{'role': 'user', 'content': 'a', 'x': [1, 0.5], 'y': {'name': 'n', 'id': None}, 'z': [{'a': 1}], "
                    "'u': False}]")


def deep(levels):
    value = "a"
    for _ in range(levels):
        value = [value]
    return value


REPLY = Reply(turn("assistant", "a"), Generated([1], 0.0, "stop", "a"))
WRONG_MESSAGES = {
    r"no messages": [],
    r"message 1 must be an object": [ASKED[0], "Hello"],
    r"message 0 must have a role": [{"content": "a"}],
    r"message 0 must have a content; it has role, contents": [{"role": "user", "contents": "a"}],
    r"message 1 is an answer as a whole, and no message; append its \.message": [ASKED[0], REPLY],
    r"must have a role, such as \"user\", not 5": [turn(5, "a")],
    r"the content of message 0 must be a text, or a list of parts .*, not 5": [turn("user", 5)],
    r"the content of message 0 must be a text.*not \{'text'": [turn("user", {"text": "a"})],
    r"message 1 has a part of the type 'image_url'; images, audio and files are not supported": [
        ASKED[0], turn("user", [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": "b"}])],
    r"the type 'input_audio'": [turn("user", [{"type": "input_audio"}])],
    r"content of message 0": [turn("user", [{"type": "text"}])],
    r"message 0 has nan, which is no JSON": [turn("user", "a", x=float("nan"))],
    r"message 0 has -inf": [turn("user", "a", x=[{"y": -np.inf}])],
    r"half of a surrogate pair": [turn("user", "a\ud83d")],
    r"message 0 has the key 5; the keys of an object must be texts": [turn("user", "a", x={5: 1})],
    r"message 0 has the text 'k\\ud800'": [turn("user", "a", x={"k\ud800": 1})],
    r"message 0 has array\(.*a ndarray; a template gets plain JSON alone": [turn("user", "a", x=np.zeros(2))],
    r"a set; a template": [turn("user", "a", x={1})],
    r"nested deeper than 100 levels": [turn("user", "a", x=deep(MAX_DEPTH))],
    r"more than 200,000 values": [turn("user", "a", x=[0] * MAX_VALUES)],
    r"more than 4,000,000 characters": [turn("user", "a" * MAX_CHARACTERS)],
    r"more than 1,024 bits": [turn("user", "a", x=2**1024)],
}
WRONG_OPTIONS = {
    r"continue_final_message lets the model go on .*add_generation_prompt": {
        "continue_final_message": True, "add_generation_prompt": True},
    r'control_tokens must be "text" or "parse", not "sanitize"|control_tokens must be': {"control_tokens": "sanitize"},
    r"template must be a template of Jinja": {"template": 5},
    r"at most 1,000,000 characters": {"template": "a" * (MAX_TEMPLATE + 1)},
    r"date must be a datetime": {"date": "today"},
    r"none of the names may be messages, tools": {"template_options": {"tools": 1}},
    r"tools has a function of Python, .*describe it: tools must be a list of JSON": {"tools": len},
    r"tools has a function": {"tools": [{}, len]},
    r"tools must be a list of JSON schemas": {"tools": {}},
    r"tools\[0\] has inf": {"tools": [{"a": float("inf")}]},
    r"documents must be a list of objects with title and text, not 'a'": {"documents": "a"},
    r"style has <object": {"template_options": {"style": object()}},
    r"trust_template must be True or False": {"trust_template": "yes"},
}


@pytest.fixture
def asks_nobody(prompts_of, monkeypatch):
    """Return the prompts of a template that may not be rendered."""
    prompts = prompts_of(CHATML)
    monkeypatch.setattr(type(prompts.renderer), "render", lambda *_, **__: pytest.fail("it was rendered"))
    return prompts


@pytest.mark.parametrize("error", WRONG_MESSAGES)
def test_wrong_messages(asks_nobody, error):
    with pytest.raises(InputError, match=error):
        asks_nobody.text(WRONG_MESSAGES[error], TemplateOptions())


@pytest.mark.parametrize("error", WRONG_OPTIONS)
def test_wrong_options(asks_nobody, error):
    with pytest.raises(InputError, match=error):
        asks_nobody.text(ASKED, TemplateOptions(**WRONG_OPTIONS[error]))


def test_at_the_limits(prompts_of):
    given = [turn("user", "", x=[*range(MAX_VALUES - 200)], y=2**1024 - 1, z=deep(MAX_DEPTH - 1))]
    assert prompts_of("{{ messages[0].x|length }}").text(given, TemplateOptions()) == str(MAX_VALUES - 200)
    long = [turn("user", "a" * (MAX_CHARACTERS - 20))]
    assert len(prompts_of("{{ messages[0].content }}").text(long, TemplateOptions())) == MAX_CHARACTERS - 20


def test_a_prompt_above_the_bound(prompts_of):
    options = TemplateOptions()
    with pytest.raises(InputError, match="the prompt has at least"):      # without reading all of its characters
        prompts_of(CHATML).ids([turn("user", "b " * 150_000)], options)


def test_the_sentence_of_a_template_comes_through(prompts_of):
    with pytest.raises(InputError, match="the chat template refuses these messages: Only user roles!"):
        prompts_of("{{ raise_exception('Only user roles!') }}").text(ASKED, TemplateOptions())
    with pytest.raises(InputError, match=r"the chat template refuses these messages: \ufffd\[2Ja"):
        prompts_of("{{ raise_exception('\x1b[2Ja') }}").text(ASKED, TemplateOptions())


IN_PARTS = [{"type": "text", "text": "Hello <|im_end|>"}, {"type": "text", "text": "you "}]
JOINED = "Hello <|im_end|>\nyou "


def test_parts_are_joined_for_a_template_that_fails_with_them(prompts_of):
    options, prompts = TemplateOptions(), prompts_of(CHATML)
    given, joined = ([turn("system", content), turn("user", content)] for content in (IN_PARTS, JOINED))
    assert prompts.text(given, options) == prompts.text(joined, options)
    assert prompts.ids(given, options) == prompts.ids(joined, options)
    assert JOINED in prompts.text(given, options)


def test_parts_are_as_they_are_for_a_template_that_takes_them(prompts_of):
    texts = "{% for part in messages[0].content %}({{ part.text }}){% endfor %}"
    assert prompts_of(texts).text([turn("user", IN_PARTS)], TemplateOptions()) == "(Hello <|im_end|>)(you )"


def test_joined_parts_can_be_continued(prompts_of):
    options = TemplateOptions(continue_final_message=True)
    text = prompts_of(CHATML).text([turn("user", "a"), turn("assistant", IN_PARTS)], options)
    assert text.endswith("<|im_start|>assistant\nHello <|im_end|>\nyou ")


def test_another_failure_of_a_template_is_told_with_parts_too(prompts_of):
    with pytest.raises(InputError, match="the chat template fails with these messages: division"):
        prompts_of("{{ 1 / 0 }}").text([turn("user", IN_PARTS)], TemplateOptions())
    with pytest.raises(InputError, match="the chat template refuses these messages: texts only"):
        prompts_of("{% if messages[0].content is not string %}{{ raise_exception('texts only') }}{% endif %}").text(
            [turn("user", IN_PARTS)], TemplateOptions())


def test_an_end_that_the_template_changes_cannot_be_continued(prompts_of):
    given = [turn("user", "a"), turn("assistant", "b c")]
    options = TemplateOptions(continue_final_message=True, add_generation_prompt=False)
    for template in ("{{ messages[1].content|upper }}", "{{ messages[1].content[:3] }}", "content"):
        with pytest.raises(InputError, match="the final message does not appear in the chat"):
            prompts_of(template).text(given, options)
    assert prompts_of("{{ messages[1].content.strip() }}!").text([*given[:1], turn("assistant", "b ")], options) == "b"


def test_settings_of_a_chat():
    whole = ChatConfig({"default": "a"}, SPECIAL_TOKENS, ("<a>",), {"b": [1]})
    assert ChatConfig.from_json(json.loads(json.dumps(whole.to_json()))) == whole
    for wrong in ({"templates": []}, {"templates": {"a": 5}}, {"templates": {"a": "b" * (MAX_TEMPLATE + 1)}},
                  {"templates": {str(i): "" for i in range(65)}}, {"special_tokens": {"a": "\ud800"}},
                  {"special_tokens": {"a": "b" * 1001}}, {"control_tokens": "a"}, {"control_tokens": ("a" * 1001,)},
                  {"response_template": {1}}, {"response_template": "a" * 1_000_001}):
        with pytest.raises(WeightsError, match="impossible settings of a chat: "):
            ChatConfig(**wrong)
    with pytest.raises(WeightsError, match="chat must have templates"):
        ChatConfig.from_json({"template": "a"})
    assert issubclass(InputError, EngineError)
