"""Make the models and the recording that the examples of docs/coming-from.md read."""

import json
import shutil
from pathlib import Path

import numpy as np

from engine import Model, save

from . import minilm, smollm2, whisper
from .golden_generating import GOLDEN
from .golden_gguf import gguf_of
from .m3_folders import write_m3
from .paths import CTRANSLATE2
from .sound_files import wav
from .speech import recording, timed
from .tiny_models import random_model, write_json
from .tiny_text import tiny_text

WORDS = ("a", "small", "house", "ein", "kleines", "haus", "garten", "the")
"""The words of the translator, after <unk>, <s> and </s>."""
STORY = ("<unk>", "<s>", "</s>", "once", "upon", "a", "time", *(f"word{i}" for i in range(54)))
"""The 61 tokens of the language model."""


def make_models(folder: Path, real: bool = False) -> dict[str, str]:
    """Write every file that the document names; return what each example of a library reads.

    real: take real models where they are, which the other library needs too; otherwise tiny ones with random weights.
    """
    folder.mkdir(parents=True, exist_ok=True)
    _language_model(folder / "language-model")
    _translator(folder / "translator")
    write_m3(folder / "bge-m3")
    read = {"transformers": "a random Llama of two layers", "CTranslate2": "a random Transformer of three layers",
            "FlagEmbedding": "a random XLM-RoBERTa of two layers"}
    linked = {
        "llama-cpp-python": ("language-model.gguf", smollm2.FILE), "fastembed": ("all-MiniLM-L6-v2", minilm.FOLDER),
        "faster-whisper": ("whisper-tiny.en", whisper.FOLDER)}  # fmt: skip
    for library, (name, source) in linked.items():
        if real and source.exists():
            (folder / name).symlink_to(source.resolve())
            read[library] = f"{source.name}, the real model"
    if real and (whisper.SPEECH / "beckett.wav").exists():
        shutil.copy(whisper.SPEECH / "beckett.wav", folder / "recording.wav")
    else:
        samples = (np.clip(recording(3), -1, 1) * 32767).astype("<i2")
        (folder / "recording.wav").write_bytes(wav(samples.tobytes()))
    if "llama-cpp-python" not in read:
        (folder / "language-model.gguf").write_bytes(gguf_of("llama"))
    if "fastembed" not in read:
        save(Model(encoder=random_model(tiny_text())), folder / "all-MiniLM-L6-v2.npz")
        (folder / "all-MiniLM-L6-v2.npz").rename(folder / "all-MiniLM-L6-v2")
    if "faster-whisper" not in read:
        save(timed(), folder / "whisper.npz")
        (folder / "whisper.npz").rename(folder / "whisper-tiny.en")
    return {library: read.get(library, "a random model, as the real one is not there") for library in [*read, *linked]}


def _word_level(words: list[str]) -> str:
    """Return a tokenizer.json that splits texts at spaces."""
    added = [{"id": i, "content": words[i], "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
              "special": True} for i in range(3)]  # fmt: skip
    return json.dumps({"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
                       "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": None, "decoder": None,
                       "model": {"type": "WordLevel", "vocab": {word: i for i, word in enumerate(words)},
                                 "unk_token": "<unk>"}})  # fmt: skip


def _language_model(folder: Path) -> None:
    shutil.copytree(GOLDEN / "llama", folder)
    (folder / "tokenizer.json").write_text(_word_level(list(STORY)), encoding="utf-8")
    write_json(folder / "tokenizer_config.json", {
        "tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>",
        "clean_up_tokenization_spaces": False})  # fmt: skip


def _translator(folder: Path) -> None:
    words = ["<unk>", "<s>", "</s>", *WORDS]
    shutil.copytree(CTRANSLATE2 / "plain", folder)
    write_json(folder / "shared_vocabulary.json", words)
    (folder / "tokenizer.json").write_text(_word_level(words), encoding="utf-8")
