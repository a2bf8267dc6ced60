"""Tiny random models of speech, and sounds, for several test modules."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np

from engine.config import TextConfig
from engine.generation.settings import GenerationConfig
from engine.sequences import SequenceModel, load_sequence_model

from .generating import GOLDEN

SPECIAL = ["<|endoftext|>", "<|startoftranscript|>", "<|en|>", "<|de|>", "<|transcribe|>", "<|translate|>",
           "<|notimestamps|>"]  # fmt: skip


def tokenizer_of(special: list[str], size: int) -> TextConfig:
    words = [*special, *(f" w{i}" for i in range(size - len(special)))]
    added = [{"id": i, "content": word, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
              "special": True} for i, word in enumerate(special)]  # fmt: skip
    model = {"type": "WordLevel", "vocab": {word: i for i, word in enumerate(words)}, "unk_token": words[-1]}
    return TextConfig(json.dumps({"version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
                                  "normalizer": None, "pre_tokenizer": None, "post_processor": None,
                                  "decoder": {"type": "Fuse"}, "model": model}).encode())


def model_of(special: list[str] = SPECIAL, words: int = 61) -> SequenceModel:
    """Return a random model that reads 30 s; more words than Whisper's 51,864 make it one of several languages."""
    small = load_sequence_model(GOLDEN / "whisper")
    rng = np.random.default_rng(0)
    positions = rng.standard_normal((1500, 12)).astype(np.float32)
    encoder = replace(small.encoder, stem=replace(small.encoder.stem, positions=positions))
    table = rng.standard_normal((words, 12)).astype(np.float32)
    text = tokenizer_of(special, words)
    decoder = replace(small.decoder, config=replace(small.decoder.config, vocab_size=words), text=text,
                      weights=dict(small.decoder.weights) | {"embeddings.word": table})
    settings = GenerationConfig(eos_token_id=(0,), decoder_start_token_id=1, max_new_tokens=9)
    return SequenceModel(decoder, replace(encoder, text=text), settings)


def sounds(count: int = 3) -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    return [rng.normal(0, 0.1, 5000 * (i + 1)).astype(np.float32) for i in range(count)]
