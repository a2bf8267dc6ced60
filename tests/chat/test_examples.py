"""The examples of a chat run, and say what the model's own methods say."""

from dataclasses import replace

import numpy as np
import pytest

import engine
from engine.model.generation_config import GenerationConfig

from ..tools.chats import CHATML, chat_text
from ..tools.decoders import DECODERS, make_weights
from ..tools.examples import example


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("chat") / "m.npz"
    config = replace(DECODERS["Llama"], vocab_size=280, max_positions=3000)
    engine.save(engine.Model(decoder=engine.Transformer(config, make_weights(config), chat_text(CHATML)),
                             generation=GenerationConfig(eos_token_id=[258])), path)
    return str(path)


def test_a_chat_remembers(path, capsys):
    functions = example("chat")
    functions["main"](path, "Hello", "And now?")
    with engine.load(path, threads=1) as model:
        messages = [functions["SYSTEM"], {"role": "user", "content": "Hello"}]
        first = model.chat(messages, max_new_tokens=100)
        messages += [first.message, {"role": "user", "content": "And now?"}]
        second = model.chat(messages, max_new_tokens=100)
    assert capsys.readouterr().out == f"> Hello\n{first.text}\n> And now?\n{second.text}\n"


def test_many_users_of_one_model(path, capsys):
    functions = example("many_users")
    functions["main"](path)
    printed = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert [int(user) for user, _ in printed] == [*range(functions["THREADS"])]
    with engine.load(path, threads=1) as model:
        for user in (0, 7):
            alone = [model.chat([{"role": "user", "content": question}], **functions["settings_of"](user)).text
                     for question in functions["QUESTIONS"]]
            assert printed[user][1] == " | ".join(" ".join(text.split()) for text in alone)


def test_one_document_is_read_once(path, capsys):
    functions = example("one_document")
    with engine.load(path, threads=1) as model, engine.load(path, threads=2, keep_tokens=0) as other:
        prompts = functions["prompts_of"](model)
        assert len(prompts) == 100
        answers, _, read = functions["ask"](model, prompts)
        assert 10 * read <= sum(map(len, prompts))
        assert answers[:3] == functions["ask"](other, prompts[:3])[0]


def test_a_result_ends_at_a_stop_text(path, capsys):
    texts = ["Once", "The sky is"]
    example("first_line", 40)["main"](path, *texts)
    with engine.load(path, threads=1, precision="int8") as model:
        alone = [model.generate(text, stop=["\n", "."], include_stop=True, max_new_tokens=40) for text in texts]
    shown = [f"{text}{one.text.rstrip()}    [{one.finish_reason}, {len(one.ids)} tokens]\n"
             for text, one in zip(texts, alone, strict=True)]
    assert capsys.readouterr().out == "".join(shown)


def test_the_likeliest_label_wins(path, capsys):
    functions = example("likely_labels", 40)
    functions["main"](path, "good,bad,so-so", "A film.", "Another one.")
    printed = [line.split("    ") for line in capsys.readouterr().out.splitlines()]
    with engine.load(path, threads=1) as model:
        for text, (label, probability, shown) in zip(["A film.", "Another one."], printed, strict=True):
            prompt = functions["PROMPT"].format(text=text)
            first = len(model.tokenizer.encode(prompt))
            found = {}
            for name in ("good", "bad", "so-so"):
                result = model.generate(f"{prompt} {name}", echo=True, logprobs=0, max_new_tokens=0)
                found[name] = sum(one.logprob for one in result.logprobs[first:])
            assert (label, shown) == (max(found, key=found.get), text)
            p = np.exp(found[label]) / np.exp([*found.values()]).sum()
            assert probability == f"{p:.0%}"


def test_fifty_conversations_in_one_call(path, tmp_path, capsys):
    functions = example("many_chats")
    lines = [f"line {i}" for i in range(50)]
    (tmp_path / "lines.txt").write_text("\n".join(lines), encoding="utf-8")
    functions["main"](path, str(tmp_path / "lines.txt"), "Name it.")
    printed = capsys.readouterr().out.splitlines()
    assert [line.partition("\t")[0] for line in printed] == lines
    with engine.load(path, threads=1) as model:
        alone = [functions["ask"](model, "Name it.", [line])[0] for line in lines[:2]]
    assert [line.partition("\t")[2] for line in printed[:2]] == [" ".join(text.split()) for text in alone]
