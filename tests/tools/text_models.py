"""Tiny models that write texts, for tests of a server, and what the library says to what the server is asked."""

from dataclasses import replace
from functools import cache

from engine import Generator, Model, Transformer
from engine.model.generation_config import GenerationConfig

from .chats import CHATML, TEMPLATES, chat_text
from .decoders import DECODERS, make_weights

HELLO = [{"role": "user", "content": "Hello"}]


@cache
def weights():
    return make_weights(replace(DECODERS["Llama"], vocab_size=400, max_positions=300))


def text_weights(template=CHATML, settings=None):
    """Return the model of `text_model`."""
    config = replace(DECODERS["Llama"], vocab_size=400, max_positions=300)
    generation = GenerationConfig(eos_token_id=[258], **settings or {})
    return Model(decoder=Transformer(config, weights(), chat_text(template)), generation=generation)


def text_model(template=CHATML, threads=1, precision=None, settings=None, **options):
    """Return a generator with a chat template, whose answers end at once in one case of some dozen."""
    return Generator(text_weights(template, settings), threads=threads, precision=precision, **options)


def reasoning_model():
    """Return a model whose template begins each answer with reasoning."""
    return text_model(TEMPLATES["qwen_reasoning"])


def plain_settings(seed, **settings):
    """Return the settings of the library that mean what a request to a server means."""
    return {"do_sample": True, "top_k": 0, "seed": seed, "max_length": 301} | settings
