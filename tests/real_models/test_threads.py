"""Mixed calls of threads over real models at the same time: each has the bits of the call alone.

    ENGINE_CALLS=300 python -m pytest tests/real_models/test_threads.py
"""

import os
import random
from functools import partial

import pytest

from engine import Engine, Generator, Transcriber, read_audio

from ..tools import minilm, smollm2, splade, whisper
from ..tools.bits import same
from ..tools.threads import together

CALLS = int(os.environ.get("ENGINE_CALLS", "30"))
THREADS = 10
TEXTS = ["The cat sat on the mat.", "A dog", "Where does the river end, and who has seen it end?", "Rain. " * 40, ""]
FILES = {"MiniLM": minilm.FOLDER, "SmolLM2": smollm2.FILE, "Whisper": whisper.FOLDER, "splade": splade.FOLDER}


def encoder_calls(engine):
    return [*(lambda text=text: engine.encode(text) for text in TEXTS), lambda: engine.encode(TEXTS),
            lambda: engine.encode(TEXTS[2], output_value="token_embeddings")]


def generator_calls(generator):
    prompts = [text for text in TEXTS if text]
    settings = ({}, {"num_beams": 3}, {"do_sample": True, "seed": 5, "top_k": 0}, {"repetition_penalty": 1.3})
    calls = [lambda prompt=prompt, own=own: generator.generate([prompt], max_new_tokens=6, **own)
             for prompt in prompts for own in settings]
    return [*calls, lambda: generator.generate(prompts, max_new_tokens=4),
            lambda: [one.log_probabilities.tolist() for one in generator.score(prompts)],
            lambda: [piece.id for piece in generator.stream(prompts[2], max_new_tokens=8)]]


def transcriber_calls(transcriber):
    samples = read_audio(whisper.SPEECH / "beckett.wav")
    return [lambda begin=begin: transcriber.transcribe(samples[begin : begin + 48_000], max_new_tokens=12)
            for begin in (0, 40_000)]


def test_each_call_has_the_bits_of_the_call_alone():
    kinds = {"MiniLM": lambda path: encoder_calls(Engine.load(path, precision="int8")),
             "splade": lambda path: encoder_calls(Engine.load(path)),
             "SmolLM2": lambda path: generator_calls(Generator.load(path)),
             "Whisper": lambda path: transcriber_calls(Transcriber.load(path))}
    calls = [call for name, load in kinds.items() if FILES[name].exists() for call in load(FILES[name])]
    if not calls:
        pytest.skip(minilm.MISSING)
    alone = [call() for call in calls]

    def use(seed):
        rng = random.Random(seed)
        for _ in range(CALLS // THREADS):
            i = rng.randrange(len(calls))
            assert same(calls[i](), alone[i]), i

    together([partial(use, seed) for seed in range(THREADS)])
