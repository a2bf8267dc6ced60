"""Templates and special tokens come from all forms that the files of models have."""

import json
import shutil

import numpy as np
import pytest

from engine import Generator, WeightsError
from engine.files.folder import ModelFolder
from engine.files.reading import FormatError
from engine.loading.chat import read_chat, read_gguf_chat
from engine.loading.load import load_model
from engine.loading.model_files import files_read
from engine.model.chat_config import MAX_TEMPLATE, ChatConfig

from ..tools.chats import CHATML, TURNS, tokenizer_json
from ..tools.golden_models import GOLDEN
from ..tools.tiny_models import write_json

SETTINGS = "tokenizer_config.json"


@pytest.fixture
def folder(tmp_path):
    return ModelFolder(tmp_path)


def settings(folder, **values):
    write_json(folder.path / SETTINGS, values)
    return read_chat(ModelFolder(folder.path))


def test_nothing_is_there(folder):
    assert read_chat(folder) is None
    assert settings(folder, model_max_length=5, bos_token=None) is None


def test_the_older_forms(folder):
    assert settings(folder, chat_template="a").templates == {"default": "a"}
    listed = [{"name": "default", "template": "a"}, {"name": "tool_use", "template": "b"}]
    assert settings(folder, chat_template=listed).templates == {"default": "a", "tool_use": "b"}
    for wrong in (5, ["a"], [{"name": "a"}], [{"name": 1, "template": "a"}], listed * 33):
        with pytest.raises(WeightsError, match=r"tokenizer_config\.json: chat_template must be a text, or a list"):
            settings(folder, chat_template=wrong)


def test_files_come_before_the_settings(folder):
    (folder.path / "chat_templates").mkdir()
    (folder.path / "chat_templates" / "tool_use.jinja").write_text("t")
    (folder.path / "chat_templates" / "note.txt").write_text("no template")
    assert settings(folder, chat_template="a").templates == {"tool_use": "t"}
    (folder.path / "chat_template.jinja").write_bytes("ö\r\nb\r".encode())
    assert settings(folder, chat_template="a").templates == {"default": "ö\nb\n", "tool_use": "t"}
    assert files_read(ModelFolder(folder.path)) == [SETTINGS, "chat_template.jinja", "chat_templates/tool_use.jinja"]
    (folder.path / "chat_template.jinja").write_bytes(b"\xff")
    with pytest.raises(WeightsError, match=r"chat_template\.jinja: a template must be UTF-8"):
        read_chat(folder)
    (folder.path / "chat_template.jinja").write_text("a" * (MAX_TEMPLATE + 1))
    with pytest.raises(WeightsError, match="templates has a text of more than 1,000,000 characters"):
        read_chat(folder)
    (folder.path / "chat_template.jinja").write_text("a" * (4 * MAX_TEMPLATE + 1))
    with pytest.raises(WeightsError, match=r"chat_template\.jinja: .*4,000,000"):
        read_chat(folder)


def test_special_tokens(folder):
    write_json(folder.path / "special_tokens_map.json", {"bos_token": "<old>", "sep_token": {"content": "<sep>"}})
    tokens = {"bos_token": "<s>", "eos_token": {"content": "</s>", "lstrip": False}, "pad_token": None,
              "x_token": "<x>", "add_bos_token": True, "extra_special_tokens": {"image_token": "<image>"}}
    named = {"bos_token": "<s>", "eos_token": "</s>", "x_token": "<x>", "image_token": "<image>"}
    assert settings(folder, **tokens, added_tokens_decoder={}).special_tokens == named
    old = named | {"bos_token": "<old>", "sep_token": "<sep>"}
    assert settings(folder, **tokens).special_tokens == old         # as files before transformers 4.34 have them
    with pytest.raises(WeightsError, match="bos_token must be a token, not 5"):
        settings(folder, bos_token=5, added_tokens_decoder={})


def test_what_else_the_settings_say(folder):
    found = settings(folder, chat_control_tokens=["<a>"], response_template={"role": "assistant"})
    assert (found.control_tokens, found.response_template) == (("<a>",), {"role": "assistant"})
    for wrong in ("<a>", [5]):
        with pytest.raises(WeightsError, match=r"tokenizer_config\.json: .*control_tokens must be"):
            settings(folder, chat_control_tokens=wrong)


GGUF = {"tokenizer.ggml.tokens": ["<s>", "</s>", "a"], "tokenizer.ggml.bos_token_id": 0,
        "tokenizer.ggml.eos_token_id": 1, "tokenizer.ggml.padding_token_id": 9}


def test_gguf():
    templates = {"tokenizer.chat_template": "a", "tokenizer.chat_template.tool_use": "b",
                 "tokenizer.chat_templates": ["tool_use"]}
    assert read_gguf_chat(GGUF | templates) == ChatConfig({"default": "a", "tool_use": "b"},
                                                          {"bos_token": "<s>", "eos_token": "</s>"})
    assert read_gguf_chat({}) is None
    assert read_gguf_chat(GGUF).templates == {}
    with pytest.raises(FormatError, match=r"tokenizer\.chat_template\.a must be a text, not 5"):
        read_gguf_chat({"tokenizer.chat_template.a": 5})
    with pytest.raises(WeightsError, match="more than 1,000,000 characters"):
        read_gguf_chat({"tokenizer.chat_template": "a" * (MAX_TEMPLATE + 1)})
    with pytest.raises(FormatError, match="must be a text"):
        read_gguf_chat({"tokenizer.chat_template": np.zeros(3)})


def test_a_folder_of_a_language_model(tmp_path):
    shutil.copytree(GOLDEN.parent / "decoders" / "llama", tmp_path / "m")
    (tmp_path / "m" / "tokenizer.json").write_bytes(tokenizer_json("bytes"))
    write_json(tmp_path / "m" / SETTINGS, {"chat_template": CHATML, "bos_token": "<s>"})
    model = load_model(tmp_path / "m", kind="generate")
    assert model.decoder.text.chat == ChatConfig({"default": CHATML}, {"bos_token": "<s>"})
    with Generator.load(tmp_path / "m", threads=1) as generator:
        assert generator.apply_chat_template(TURNS[:1]) == "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"
    assert json.loads((tmp_path / "m" / "config.json").read_text())["model_type"] == "llama"
