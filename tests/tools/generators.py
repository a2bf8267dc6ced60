"""Small models that generate, without a file: a translator and a language model."""

from dataclasses import replace

from engine import Model, Transformer
from engine.model.config import ModelConfig
from engine.model.generation_config import GenerationConfig

from .decoders import DECODERS, make_weights

ENCODER = ModelConfig("test", 38, 2, 2, 19, 30, vocab_size=50, max_positions=90)
SETTINGS = GenerationConfig(eos_token_id=[3], decoder_start_token_id=2, max_new_tokens=12)
SOURCES = [[5, 6, 7], [8], [9, 10, 11, 12, 13, 14, 15, 16, 17], [5, 6, 7, 8], [4, 4]]


def translator(text=None, tied=False):
    decoder = DECODERS["2017"]
    weights = make_weights(decoder)
    encoder = make_weights(ENCODER, 1)
    if tied:
        decoder = replace(decoder, hidden_size=38, vocab_size=50)
        weights = make_weights(decoder)
        weights["embeddings.word"] = encoder["embeddings.word"].copy()
    return Model(decoder=Transformer(decoder, weights, text), encoder=Transformer(ENCODER, encoder, text),
                 generation=SETTINGS)


def language_model(text=None):
    config = DECODERS["Llama"]
    return Model(decoder=Transformer(config, make_weights(config), text),
                 generation=replace(SETTINGS, eos_token_id=()))


def ids_of(results):
    return [result.ids for result in results]
