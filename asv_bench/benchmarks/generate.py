"""Measure the generation of tokens by a language model with random weights: greedy, with beams, and its first token."""

from dataclasses import replace
from pathlib import Path
from time import perf_counter

from engine import Generator, Model, load_model, save
from engine.backends import get_backend
from engine.backends.steps import Row
from engine.backends.wants import GREEDY
from engine.model.attention import AttentionKind
from engine.model.config import ModelConfig
from engine.model.run_config import RunConfig

from .models import random_ids, random_model

CONFIG = ModelConfig(
    family="llama", hidden_size=256, num_layers=6, num_heads=8, num_kv_heads=2, head_width=32, ffn_size=768,
    vocab_size=16384, max_positions=2048, position_table=False, embedding_norm=False, norm="rms", norm_place="pre",
    biases=(), gated=True, activation="silu", logits="tied",
    attention_kinds=(AttentionKind(rotary_theta=10000.0, causal=True),),
)  # fmt: skip
PROMPT, TOKENS, REPEATS = 16, 64, 3
"""Tokens of a prompt, new tokens of a result, and calls of which the fastest counts."""


class RandomLanguageModel:
    """Base class: asv writes the file once and passes its path to each method."""

    timeout = 300

    def setup_cache(self):
        """Write the model to asv's folder for the run; return its path."""
        path = Path("language.npz").absolute()
        save(Model(decoder=replace(random_model(CONFIG), text=None)), path)
        return path


class Generate(RandomLanguageModel):
    params = ([1, 8], [1, 4], ["float32", "int8"])
    param_names = ("batch", "beams", "precision")

    def setup(self, path, batch, beams, precision):
        self.generator = Generator.load(path, threads=1, precision=precision, keep_tokens=0)
        self.prompts = [ids.tolist() for ids in random_ids([PROMPT] * batch, CONFIG.vocab_size)]
        self.seconds(1, beams)

    def seconds(self, tokens, beams):
        """Return the seconds of a call for results of this many tokens."""
        begun = perf_counter()
        self.generator.generate(self.prompts, max_new_tokens=tokens, num_beams=beams)
        return perf_counter() - begun

    def track_tokens_per_second(self, path, batch, beams, precision):
        """Return the tokens of the results per second, without the first ones."""
        whole, first = (min(self.seconds(tokens, beams) for _ in range(REPEATS)) for tokens in (TOKENS, 1))
        return batch * (TOKENS - 1) / (whole - first)

    track_tokens_per_second.unit = "tokens/s"


class FirstToken(RandomLanguageModel):
    params = ([16, 512], ["float32", "int8"])
    param_names = ("prompt", "precision")

    def setup(self, path, prompt, precision):
        self.generator = Generator.load(path, threads=1, precision=precision, keep_tokens=0)
        [ids] = random_ids([prompt], CONFIG.vocab_size)
        self.prompt = ids.tolist()
        self.time_first_token(path, prompt, precision)

    def time_first_token(self, path, prompt, precision):
        next(self.generator.stream(self.prompt, max_new_tokens=2))


class Step(RandomLanguageModel):
    """A new token of one sequence behind this many others, with keys and values in each precision."""

    params = ([32, 500, 2000], ["float32", "bfloat16", "int8"])
    param_names = ("context", "cache")

    def setup(self, path, context, cache):
        model = load_model(path, kind="generate").decoder
        self.decoder = get_backend("auto").prepare_decoder(model.config, model.weights, RunConfig(cache=cache))
        before, self.tokens = random_ids([context, 1], CONFIG.vocab_size)
        self.request = self.decoder.open()
        self.parent = int(self.decoder.step([Row(self.request, None, before, wants=GREEDY)]).hypotheses[0])
        self.time_step(path, context, cache)

    def time_step(self, path, context, cache):
        scores = self.decoder.step([Row(self.request, self.parent, self.tokens, wants=GREEDY)])
        self.decoder.release(scores.hypotheses.tolist())


class Continuation(RandomLanguageModel):
    """New tokens of a request behind tokens that the decoder has read before, as in the next turn of a chat."""

    params = ([1, 16, 128], [0, 512])
    param_names = ("tokens", "past")

    def setup(self, path, tokens, past):
        model = load_model(path, kind="generate").decoder
        self.decoder = get_backend("auto").prepare_decoder(model.config, model.weights, RunConfig())
        before, self.tokens = random_ids([past, tokens], CONFIG.vocab_size)
        self.request, self.parent = self.decoder.open(), None
        if past:
            self.parent = int(self.decoder.step([Row(self.request, None, before, wants=GREEDY)]).hypotheses[0])
        self.time_step(path, tokens, past)

    def time_step(self, path, tokens, past):
        scores = self.decoder.step([Row(self.request, self.parent, self.tokens, wants=GREEDY)])
        self.decoder.release(scores.hypotheses.tolist())
