"""Tiny random models of speech, and sounds, for several test modules."""

import json
from dataclasses import replace

import numpy as np

from engine import Model, load_model
from engine.model.generation_config import GenerationConfig
from engine.model.text_config import TextConfig
from engine.speech.audio_files import read_audio
from engine.speech.spectrogram import mel_filters
from engine.weights.model import Transformer

from .golden_generating import GOLDEN
from .whisper import SPEECH

SPECIAL = ["<|endoftext|>", "<|startoftranscript|>", "<|en|>", "<|de|>", "<|transcribe|>", "<|translate|>",
           "<|notimestamps|>"]  # fmt: skip


def tokenizer_of(words: list[str], special: range) -> TextConfig:
    """Return a tokenizer with these tokens; special: the ids of the special ones."""
    added = [{"id": i, "content": words[i], "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
              "special": True} for i in special]  # fmt: skip
    model = {"type": "WordLevel", "vocab": {word: i for i, word in enumerate(words)}, "unk_token": words[-1]}
    return TextConfig(json.dumps({"version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
                                  "normalizer": None, "pre_tokenizer": None, "post_processor": None,
                                  "decoder": {"type": "Fuse"}, "model": model}).encode())


TIMES = 1501
"""Timestamps of a model, from 0 to 30 s."""
WORDS = 40
"""Words of a model with timestamps that knows one language."""


def timed(several: bool = False) -> Model:
    """Return a random model with timestamps. As in Whisper, text comes first, then special tokens, then the times."""
    special = [*SPECIAL[:-1], "<|nospeech|>", SPECIAL[-1]]
    size = 51865 if several else WORDS + len(special) + TIMES
    words = [f" w{i}" for i in range(size - len(special) - TIMES)]
    tokens = [*words, *special, *(f"<|{i * 0.02:.2f}|>" for i in range(TIMES))]
    settings = GenerationConfig(eos_token_id=(len(words),), decoder_start_token_id=len(words) + 1, max_new_tokens=8,
                                max_initial_timestamp_index=50)
    model = model_of(words=size)
    text = tokenizer_of(tokens, range(len(words), len(words) + len(special)))
    return Model(decoder=replace(model.decoder, text=text), encoder=replace(model.encoder, text=text),
                 generation=settings)


def model_of(special: list[str] = SPECIAL, words: int = 61) -> Model:
    """Return a random model that reads 30 s; more words than Whisper's 51,864 make it one of several languages."""
    small = load_model(GOLDEN / "whisper", kind="generate")
    rng = np.random.default_rng(0)
    positions = rng.standard_normal((1500, 12)).astype(np.float32)
    encoder = replace(small.encoder, stem=replace(small.encoder.stem, positions=positions))
    table = rng.standard_normal((words, 12)).astype(np.float32)
    text = tokenizer_of([*special, *(f" w{i}" for i in range(words - len(special)))], range(len(special)))
    decoder = replace(small.decoder, config=replace(small.decoder.config, vocab_size=words), text=text,
                      weights=dict(small.decoder.weights) | {"embeddings.word": table})
    settings = GenerationConfig(eos_token_id=(0,), decoder_start_token_id=1, max_new_tokens=9)
    return Model(decoder=decoder, encoder=replace(encoder, text=text), generation=settings)


def listening() -> Model:
    """Return a random model with timestamps whose text depends on the recording; it writes words alone."""
    model = timed()

    def sharper(part: Transformer, *names: str) -> dict[str, np.ndarray]:
        return {name: 4 * weight if name.endswith(names) else weight for name, weight in part.weights.items()}

    stem = replace(model.encoder.stem, positions=model.encoder.stem.positions * np.float32(0.3))
    encoder = replace(model.encoder, stem=stem, weights=sharper(model.encoder, "attention.query.weight"))
    decoder = replace(model.decoder, weights=sharper(model.decoder, "cross.query.weight", "cross.output.weight"))
    others = tuple(range(WORDS, decoder.config.vocab_size))
    return Model(decoder=decoder, encoder=encoder,
                 generation=model.generation.changed(no_repeat_ngram_size=1, suppress_tokens=others))


def sounds(count: int = 3) -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    return [rng.normal(0, 0.1, 5000 * (i + 1)).astype(np.float32) for i in range(count)]


def features_at_once(samples: np.ndarray, channels: int = 80) -> np.ndarray:
    """Return the features of a recording [channels, n // 160], with arrays of the whole recording."""
    frames = len(samples) // 160
    padded = np.pad(np.pad(samples, (0, 200)), (200, 0), mode="reflect")
    windows = np.lib.stride_tricks.sliding_window_view(padded, 400)[::160]
    bell = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(400) / 400)
    found = np.empty((channels, frames), np.float32)
    for first in range(0, frames, 500):
        power = (np.abs(np.fft.rfft(windows[first : min(frames, first + 500)] * bell)) ** 2).T
        mel = sum(weights[:, None] * row for weights, row in zip(mel_filters(channels).T, power, strict=True))
        found[:, first : first + 500] = np.log10(np.maximum(mel, 1e-10))
    if frames:
        np.maximum(found, found.max() - np.float32(8), out=found)
    return (found + 4) / 4


def recording(seconds: float, seed: int = 0) -> np.ndarray:
    """Return noise of changing strength."""
    samples = np.random.default_rng(seed).normal(0, 0.1, round(16000 * seconds))
    return (samples * (1 + np.sin(np.arange(len(samples)) / 9000))).astype(np.float32)


SHORT = ("beckett", "clone-test", "endgame_nagg_nell")
"""Recordings of one window. With several, faster-whisper lets the times of words decide where a window begins."""


def joined_recordings() -> dict[str, np.ndarray]:
    """Return recordings, two of them joined: one longer than 60 s, and one with 40 s of silence."""
    names = ("two_cities", "beckett", "clone-test", "endgame_nagg_nell")
    found = {name: read_audio(SPEECH / f"{name}.wav") for name in names}
    pause = np.zeros(8000, np.float32)
    joined = [part for name in names for part in (found[name], pause)][:-1]
    silence = [found["beckett"], np.zeros(640000, np.float32), found["clone-test"]]
    return found | {"joined": np.concatenate(joined), "silence": np.concatenate(silence)}
