"""Measure the encoding of sentences: tokenizer, batching, forward pass and pooling."""

import random

from .models import CONFIGS, RandomModels, load, vocabulary


class Encode(RandomModels):
    params = (["8 words", "3 to 100 words"], [1, 2])
    param_names = ("sentences", "threads")

    def setup(self, paths, sentences, threads):
        rng = random.Random(0)
        words = vocabulary(CONFIGS["MiniLM"].vocab_size)
        lengths = [8] * 256 if sentences == "8 words" else [rng.randint(3, 100) for _ in range(256)]
        self.sentences = [" ".join(rng.choices(words, k=length)) for length in lengths]
        self.engine = load(paths["MiniLM"], threads)
        self.engine.encode(self.sentences[:1])

    def time_encode(self, paths, sentences, threads):
        self.engine.encode(self.sentences)

    def time_encode_one(self, paths, sentences, threads):
        self.engine.encode(self.sentences[0])
