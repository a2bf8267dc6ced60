"""Models that are an encoder alone, as most tests need them: load, save, convert and run a `Transformer`."""

from functools import partial

from engine import Engine, Model, load_model, save
from engine.families import FAMILIES
from engine.weights.quantize import convert_model

TRANSLATES = [name for name, family in FAMILIES.items() if family.translates]
"""The families whose encoders are tested as those of models that generate."""
ENCODERS = {name: family for name, family in FAMILIES.items() if family.read_encoder and name not in TRANSLATES}
"""The families of encoders, by model_type."""
GENERATORS = {name: family for name, family in FAMILIES.items() if family.read_generator}
"""The families of models that generate, by model_type."""


def load_encoder(path, **options):
    """Return the encoder in a folder or a file."""
    return load_model(path, kind="encode", **options).encoder


def save_encoder(encoder, path):
    """Write an `.npz` with an encoder."""
    save(Model(encoder=encoder), path)


def convert_encoder(encoder, precision, bounded=False):
    """Return an encoder in another precision."""
    return convert_model(Model(encoder=encoder), precision, bounded).encoder


def engine_of(encoder, **options):
    """Return an `Engine` of an encoder that is in memory."""
    return Engine(Model(encoder=encoder), **options)


def module_of(family):
    """Return the name of the module that describes a family."""
    read = family.read_encoder or family.read_generator
    return (read.args[0] if isinstance(read, partial) else read).__module__.rpartition(".")[2]


def names_of(model_type, /, **config):
    """Return the names of the tensors of a family's encoder; config: of config.json, beside the model_type."""
    return FAMILIES[model_type].read_encoder({"model_type": model_type} | config).names
