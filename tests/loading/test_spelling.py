"""The vocabulary of a model of letters, and the settings of its tokenizer and its feature extractor, from a folder."""

import json
import logging
import shutil

import pytest

from engine import EngineError, Transcriber, load, load_model
from engine.files.folder import ModelFolder
from engine.loading.spelling import read_spelling

from ..tools.paths import ENCODERS
from ..tools.tiny_models import safetensors, write_json

VOCABULARY = {"<pad>": 0, "|": 1, "a": 2, "b": 3}


def folder_of(path, vocabulary=VOCABULARY, extractor=None, **settings):
    """Write the files of a folder beside its weights."""
    path.mkdir(exist_ok=True)
    write_json(path / "vocab.json", vocabulary)
    write_json(path / "tokenizer_config.json", settings)
    write_json(path / "preprocessor_config.json", {"sampling_rate": 16000} if extractor is None else extractor)
    return ModelFolder(path)


def test_tokens_that_the_vocabulary_lacks(tmp_path):
    """transformers adds <s>, </s> and <unk> behind the vocabulary, and <unk> stands for what nobody names."""
    assert read_spelling(folder_of(tmp_path), 8).tokens == ("<pad>", "|", "a", "b", "<s>", "</s>", "<unk>", "<unk>")
    stated = folder_of(tmp_path, added_tokens_decoder={"5": {"content": "c"}, "4": {"content": "<s>"}, "0": {
        "content": "<other>"}}, unk_token={"content": "?"}, bos_token=None)
    assert read_spelling(stated, 7).tokens == ("<pad>", "|", "a", "b", "<s>", "c", "?")
    assert read_spelling(stated, 8).tokens[7] == "</s>"
    plain = folder_of(tmp_path)
    write_json(tmp_path / "added_tokens.json", {"<s>": 5, "</s>": 4})
    assert read_spelling(plain, 7).tokens == ("<pad>", "|", "a", "b", "</s>", "<s>", "<unk>")


def test_settings(tmp_path):
    folder = folder_of(tmp_path, {"x": 1, "y": 0}, {"do_normalize": False}, pad_token="x", word_delimiter_token="y",
                       replace_word_delimiter_char="_", do_lower_case=True, clean_up_tokenization_spaces=True)
    spelling = read_spelling(folder, 2)
    assert (spelling.blank, spelling.delimiter, spelling.space) == (1, "y", "_")
    assert (spelling.lower_case, spelling.cleans_spaces, spelling.scales) == (True, True, False)
    assert read_spelling(folder_of(tmp_path, word_delimiter_token=None), 4).delimiter is None
    write_json(tmp_path / "processor_config.json", {"feature_extractor": {"do_normalize": False}})
    assert read_spelling(folder_of(tmp_path), 4).scales is False        # which transformers 5 writes, and which counts


def test_files_that_do_not_fit(tmp_path, refusals):
    def call(vocabulary, changes):
        folder = folder_of(tmp_path, vocabulary, **changes)
        try:
            read_spelling(folder, 4)
        except EngineError as error:
            raise type(error)(str(error).replace(str(tmp_path), "FOLDER")) from None

    refusals(call, [
        ({"a": 0}, {}), (VOCABULARY, {"pad_token": "[PAD]"}), (VOCABULARY, {"pad_token": None}),
        (VOCABULARY | {"<pad>": 9}, {}), (VOCABULARY | {"a": "2"}, {}), (VOCABULARY | {"a": -1}, {}),
        (VOCABULARY | {"a": 3}, {}), ({"eng": VOCABULARY}, {}), (VOCABULARY, {"pad_token": 3}),
        (VOCABULARY, {"tokenizer_class": "Wav2Vec2PhonemeCTCTokenizer"}),
        (VOCABULARY, {"added_tokens_decoder": {"4": "<s>"}}), (VOCABULARY, {"added_tokens_decoder": ["<s>"]}),
        (VOCABULARY, {"do_lower_case": "yes"}), (VOCABULARY, {"extractor": {"sampling_rate": 8000}}),
        (VOCABULARY, {"extractor": {"do_normalize": "yes"}}), (VOCABULARY, {"extractor": {"feature_size": 80}}),
        (VOCABULARY, {"extractor": {"feature_extractor_type": "WhisperFeatureExtractor"}}),
    ])


def copy_of(folder, without=()):
    shutil.copytree(ENCODERS / "wav2vec2_base", folder)
    for name in without:
        (folder / name).unlink()
    return folder


@pytest.mark.parametrize("name", ["vocab.json", "preprocessor_config.json"])
def test_a_file_that_is_missing(tmp_path, name):
    folder = copy_of(tmp_path / "model", [name])
    with pytest.raises(EngineError, match=f"no {name}, which says"):
        Transcriber.load(folder)
    assert load(folder, kind="encode").heads == {}      # an encoder alone does without


def test_a_language_model_beside_it_is_warned_of(tmp_path, caplog):
    folder = copy_of(tmp_path / "model")
    with caplog.at_level(logging.WARNING):
        load_model(folder)
        assert caplog.messages == []
        (folder / "alphabet.json").write_text("{}")
        load_model(folder)
    [message] = caplog.messages
    assert "texts are those of the greedy search" in message


def test_weights_without_the_head(tmp_path):
    folder = copy_of(tmp_path / "model")
    values = json.loads((folder / "config.json").read_text())
    tensors = ModelFolder(folder).tensors(lambda name: None if name.startswith("lm_head") else name)
    (folder / "model.safetensors").write_bytes(safetensors(tensors))
    with pytest.raises(EngineError, match="a head of letters, lm_head, and the weights lack it"):
        Transcriber.load(folder)
    write_json(folder / "config.json", values | {"architectures": ["Wav2Vec2ForPreTraining"]})
    assert load_model(folder).kind == "encode"
    with pytest.raises(EngineError, match="so it cannot transcribe; load it with Engine"):
        Transcriber.load(folder)
