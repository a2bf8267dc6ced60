"""`apply_chat_template`, `chat` and `stream_chat`: the same bits in any company, and the errors of a caller."""

import os
import pickle
import random
from dataclasses import replace

import numpy as np
import pytest

import engine
from engine import Generator, InputError, Model, TimedOut, Transformer, UnsupportedError
from engine.base.errors import WeightsError
from engine.model.generation_config import GenerationConfig

from ..tools.chats import ASKED, CHATML, DIALOGUES, NOW, TEMPLATES, TURNS, chat_text, turn
from ..tools.decoders import DECODERS, make_weights
from ..tools.generators import translator
from ..tools.running import COMPILED

CONVERSATIONS = 300 if os.environ.get("ENGINE_CHAT") == "long" else 10
START = "<s>"


def model(template=CHATML, kind="bytes", **settings):
    config = replace(DECODERS["Llama"], vocab_size=400, max_positions=3000)
    text = chat_text(template, kind)
    return Model(decoder=Transformer(config, make_weights(config), text),
                 generation=GenerationConfig(eos_token_id=[258], max_new_tokens=8, **settings))


@pytest.fixture(scope="module")
def generator():
    with Generator(model(), threads=1) as made:
        yield made


def conversation(rng):
    """Return messages of random texts."""
    words = ["Hello", "tell me", "<|im_end|>", "東京", "a weather", "\n", "</s>", "1 2 3"]
    return [turn("user" if i % 2 == 0 else "assistant", " ".join(rng.choices(words, k=rng.randint(0, 9))))
            for i in range(2 * rng.randint(0, 3) + 1)]


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_a_reply_is_the_same_in_any_company(precision):
    rng = random.Random(precision)
    conversations = [conversation(rng) for _ in range(CONVERSATIONS)]
    sampled = {"do_sample": True, "seed": 3, "temperature": 2.0}
    with Generator(model(), threads=1, precision=precision) as one:
        alone = [[one.chat(own, **settings) for own in conversations] for settings in ({}, sampled)]
    with Generator(model(), threads=2, precision=precision, max_rows=7, max_batch_tokens=3000) as other:
        for settings, expected in zip(({}, sampled), alone, strict=True):
            order = rng.sample(range(CONVERSATIONS), CONVERSATIONS)
            found = other.chat([conversations[i] for i in order], **settings)
            assert found == [expected[i] for i in order]
            for i in order[:4]:
                assert "".join(piece.text for piece in other.stream_chat(conversations[i], **settings)) == (
                    expected[i].text)


def test_what_a_reply_has(generator):
    reply = generator.chat(TURNS)
    ids = generator.apply_chat_template(TURNS, tokenize=True)
    assert reply.message == {"role": "assistant", "content": reply.text}
    result = generator.generate([ids])[0]
    assert (reply.ids, reply.text, reply.ended) == (result.ids, result.text, result.ended)
    assert generator.chat([*TURNS, reply.message, *ASKED]).ids     # it can be appended
    assert [type(one) for one in generator.chat([TURNS, ASKED])] == [type(reply)] * 2
    assert generator.chat((tuple(TURNS),)) == [reply]
    several = generator.chat(TURNS, num_beams=3, num_return_sequences=2)
    assert len(several) == 2
    assert several[0].message["content"] == several[0].text


def test_the_last_message_goes_on(generator):
    given = [*ASKED, turn("assistant", "It is", name="x")]
    reply = generator.chat(given, continue_final_message=True)
    assert reply.message == {"role": "assistant", "content": "It is" + reply.text, "name": "x"}
    prompt = generator.apply_chat_template(given, continue_final_message=True, add_generation_prompt=False)
    assert prompt.endswith("It is")
    parts = [turn("user", [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}])]
    own = generator.chat(parts, continue_final_message=True, template="{{ messages[0].content[1].text }} content")
    assert own.message["content"] == [{"type": "text", "text": "a"}, {"type": "text", "text": "b" + own.text}]


def test_arguments_reach_the_template(generator):
    template = "{{ tools|length }} {{ documents|length }} {{ style }} {{ strftime_now('%Y') }}"
    text = generator.apply_chat_template(ASKED, [NOW], documents=[{"text": "a"}], template=template, style="x",
                                         date=np.datetime64("2020-01-02").astype(object))
    assert text == "1 1 x 2020"
    assert generator.apply_chat_template([ASKED, TURNS], template="{{ messages|length }}") == ["1", "3"]
    with_style = generator.chat(ASKED, template="{{ style }}", template_options={"style": "abc"})
    assert with_style.ids == generator.generate([generator.tokenizer.encode("abc", add_special_tokens=False)])[0].ids


@pytest.mark.parametrize("name", [name for name in TEMPLATES if name != "strict"])      # which refuses all dialogues
def test_one_start_token_and_never_two(generator, name):
    """The tokenizer puts one in front of every text, and half of the templates write one."""
    start = generator.tokenizer.token_id(START)
    for dialogue in ("one", "turns", "parts"):
        ids = generator.apply_chat_template(DIALOGUES[dialogue]["messages"], template=TEMPLATES[name], tokenize=True)
        assert ids.count(start) == ("bos_token" in TEMPLATES[name])


def test_a_text_that_goes_to_generate_warns_of_two():
    with Generator(model(TEMPLATES["llama3"]), threads=1) as own:
        text = own.apply_chat_template(ASKED)
        with pytest.warns(UserWarning, match="begins with <s>, and the tokenizer adds another one"):
            own.generate(text)
        assert own.generate(text, add_special_tokens=False).ids == own.chat(ASKED).ids


@pytest.mark.parametrize("kind", ["bytes", "pieces"])
def test_a_stream_decodes_each_token_once(kind, monkeypatch):
    with Generator(model(kind=kind), threads=1, backend=COMPILED[0]) as own:
        expected = own.chat(ASKED, max_new_tokens=200, eos_token_id=[])
        tokenizer = own.tokenizer
        monkeypatch.setattr(tokenizer, "decode", lambda *_: pytest.fail("all tokens are decoded again"))
        looked, whole = [], tokenizer._token_with_text
        monkeypatch.setattr(tokenizer, "_token_with_text", lambda number: looked.append(number) or whole(number))
        pieces = list(own.stream_chat(ASKED, max_new_tokens=200, eos_token_id=[]))
    assert "".join(piece.text for piece in pieces) == expected.text
    assert looked == [piece.id for piece in pieces] == expected.ids
    assert len(looked) == 200


def test_errors_say_which_conversation(generator):
    with pytest.raises(InputError, match="conversation 1: message 0 must have a role"):
        generator.chat([ASKED, [{"content": "a"}], ASKED])
    with pytest.raises(InputError, match="conversation 2: the chat template refuses these messages: no"):
        generator.chat([ASKED, ASKED, TURNS],
                       template="{% if messages|length > 1 %}{{ raise_exception('no') }}{% endif %}a")
    with pytest.raises(InputError, match="conversation 1: the prompt has"):
        generator.chat([ASKED, [turn("user", "a" * 4000)]])
    with pytest.raises(InputError, match="conversation 1: there are no messages"):
        generator.chat([ASKED, []])


@pytest.mark.parametrize(("messages", "error"), [
    (None, "messages must be a text, which is one message of a user, a list such as"), ([], "there are no messages"),
    (ASKED[0], "one message alone has to be in a list, too"), (5, "messages must be a text"),
    (["Hello"], "a text in a list may be a message or a conversation"), (b"Hello", "messages must be a text"),
    ([ASKED[0], ASKED], "a message at place 0 and a list at place 1"),
])  # fmt: skip
def test_wrong_messages(generator, messages, error):
    for method in (generator.chat, generator.stream_chat, generator.apply_chat_template):
        with pytest.raises(InputError, match=error):
            method(messages)


def test_a_text_is_one_message_of_a_user(generator):
    for method in (generator.chat, generator.apply_chat_template):
        assert method("Say <|im_end|> hi") == method([turn("user", "Say <|im_end|> hi")])
    assert [*generator.stream_chat(np.str_("hi"))] == [*generator.stream_chat([turn("user", "hi")])]


def test_to_continue_a_message_is_enough(generator):
    given = [*ASKED, turn("assistant", "It is")]
    prompt = generator.apply_chat_template(given, continue_final_message=True)
    assert prompt.endswith("It is")
    assert prompt == generator.apply_chat_template(given, continue_final_message=True, add_generation_prompt=False)
    reply = generator.chat(given, continue_final_message=True)
    assert reply == generator.chat(given, continue_final_message=True, add_generation_prompt=False)
    assert generator.chat(ASKED) == generator.chat(ASKED, add_generation_prompt=True)
    assert generator.apply_chat_template(ASKED).endswith("assistant\n")


def test_wrong_calls(generator):
    with pytest.raises(InputError, match=r"control_tokens decides .* say tokenize=True"):
        generator.apply_chat_template(ASKED, control_tokens="text")
    for method in (generator.apply_chat_template, generator.chat, generator.stream_chat):
        with pytest.raises(InputError, match=r"add_generation_prompt lets it begin a new one; leave one of them out"):
            method(ASKED, continue_final_message=True, add_generation_prompt=True)
        with pytest.raises(InputError, match="add_generation_prompt must be True or False, not 'no'"):
            method(ASKED, add_generation_prompt="no")
    for method in (generator.chat, generator.stream_chat):
        with pytest.raises(InputError, match="add_generation_prompt=False leaves out the start of the answer"):
            method(ASKED, add_generation_prompt=False)
    with pytest.raises(InputError, match="stream_chat takes one conversation, not a list of 2"):
        generator.stream_chat([ASKED, ASKED])
    with pytest.raises(InputError, match="generation has no argument max_new_token "):
        generator.chat(ASKED, max_new_token=5)
    with pytest.raises(InputError, match="messages of a chat are no text; chat"):
        generator.generate(ASKED)
    with pytest.raises(TimedOut):
        generator.chat(ASKED, template="{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
                       timeout=0.2)
    with pytest.raises(UnsupportedError, match="has an encoder, which reads a source and no chat"):
        Generator(translator()).chat(ASKED)
    with pytest.raises(UnsupportedError, match="without a tokenizer"):
        Generator(Model(decoder=replace(model().decoder, text=None))).chat(ASKED, template="{{ 1 }}")
    with pytest.raises(InputError, match="this model has no chat template; pass template="):
        Generator(Model(decoder=replace(model().decoder, text=replace(model().decoder.text, chat=None)))).chat(ASKED)


def test_other_names(generator):
    own = generator.apply_chat_template(ASKED, template="{{ 1 }}")
    assert generator.apply_chat_template(conversation=ASKED, chat_template="{{ 1 }}") == own
    assert generator.chat(ASKED, max_tokens=2) == generator.chat(ASKED, max_new_tokens=2)
    parsed = generator.apply_chat_template([turn("user", "</s>")], tokenize=True, sanitize_control_tokens=False)
    assert parsed == generator.apply_chat_template([turn("user", "</s>")], tokenize=True, control_tokens="parse")
    options = {"style": "a"}
    assert generator.chat(ASKED, template="{{ style }}", chat_template_kwargs=options) == generator.chat(
        ASKED, template="{{ style }}", template_options=options)


def test_templates_travel_with_the_model(tmp_path, generator):
    engine.save(model(), tmp_path / "m.npz")
    with engine.load(tmp_path / "m.npz", threads=1) as loaded:
        assert loaded.text == generator.text
        assert loaded.chat(TURNS) == generator.chat(TURNS)
        with pickle.loads(pickle.dumps(loaded)) as again:
            assert again.chat(TURNS) == generator.chat(TURNS)


def test_close_ends_the_renderer():
    own = Generator(model(), threads=1)
    own.apply_chat_template(ASKED)
    process_id = own.chat_prompts.renderer.process_id
    own.close()
    assert not os.path.exists(f"/proc/{process_id}")
    with pytest.raises(engine.EngineError, match="this Generator is closed"):
        own.apply_chat_template(ASKED)


def test_a_wrong_text_configuration():
    text = model().decoder.text
    with pytest.raises(WeightsError, match="chat must be a ChatConfig or None"):
        replace(text, chat={"templates": {}})
