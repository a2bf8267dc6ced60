"""Create models with random weights and real shapes, which are written to disk once for all benchmarks."""

import json
import random
import string
from pathlib import Path

import numpy as np

from engine import Engine, Model, Transformer, UnsupportedError, save
from engine.families import bert
from engine.model.config import ModelConfig
from engine.model.text_config import TextConfig
from engine.weights.parameters import expected_shapes

CONFIGS = {
    "BERT-base": ModelConfig(
        family="bert", hidden_size=768, num_layers=12, num_heads=12, head_width=64, ffn_size=3072,
        vocab_size=30522, max_positions=512, token_types=2,
    ),
    "MiniLM": ModelConfig(
        family="bert", hidden_size=384, num_layers=6, num_heads=12, head_width=32, ffn_size=1536,
        vocab_size=30522, max_positions=512, token_types=2,
    ),
}  # fmt: skip


class RandomModels:
    """Base class of benchmarks that run a model: asv writes the files once and passes `paths` to each method."""

    timeout = 300

    def setup_cache(self):
        """Write an .npz for each of `CONFIGS` to asv's folder for the run; return their paths by name."""
        paths = {name: Path(f"{name}.npz").absolute() for name in CONFIGS}
        for name, path in paths.items():
            save(Model(encoder=random_model(CONFIGS[name])), path)
        return paths


def random_model(config):
    """Create a model with norm weights near 1 and other weights near 0, so that activations have a realistic size."""
    rng = np.random.default_rng(0)
    weights = {}
    for name, shape in expected_shapes(config).items():
        weights[name] = rng.standard_normal(shape, np.float32)
        weights[name] *= np.float32(0.03)
        if name.endswith("norm.weight"):
            weights[name] += np.float32(1.0)
    return Transformer(config=config, weights=weights, text=TextConfig(tokenizer_json(config.vocab_size)))


def write_hf_folder(model, folder):
    """Write the folder that transformers would write for a BERT model: config.json and model.safetensors."""
    config = model.config
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({
        "model_type": "bert", "hidden_size": config.hidden_size, "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads, "intermediate_size": config.ffn_size,
        "vocab_size": config.vocab_size, "max_position_embeddings": config.max_positions,
        "type_vocab_size": config.token_types,
    }))  # fmt: skip
    tensors = {hf_name: model.weights[bert.NAMES.rename(hf_name)] for hf_name in hf_names(config)}
    header, end = {}, 0
    for name, array in tensors.items():
        header[name] = {"dtype": "F32", "shape": array.shape, "data_offsets": [end, end + array.nbytes]}
        end += array.nbytes
    encoded = json.dumps(header).encode()
    with open(folder / "model.safetensors", "wb") as file:
        file.write(len(encoded).to_bytes(8, "little") + encoded)
        for array in tensors.values():
            file.write(array.data)


def hf_names(config):
    """Return transformers' name of each parameter of a BERT model."""
    layer = [f"{name}.{kind}" for name in bert.NAMES.layer for kind in ("weight", "bias")]
    layers = [f"{bert.NAMES.layers}{i}.{name}" for i in range(config.num_layers) for name in layer]
    return [*bert.NAMES.embeddings, *layers]


def load(path, threads, precision=None):
    """Return an engine with exactly `threads` threads; tell asv to skip what this machine cannot run."""
    try:
        engine = Engine.load(path, threads=threads, precision=precision)
    except UnsupportedError as error:       # kernels may lack a precision
        raise NotImplementedError(str(error)) from error
    if engine.threads != threads:
        raise NotImplementedError(f"{threads} threads were requested, {engine.threads} are available")
    return engine


def random_ids(lengths, vocab_size=30522):
    """Return a ragged batch: one array of token ids for each length."""
    rng = np.random.default_rng(0)
    return [rng.integers(0, vocab_size, length) for length in lengths]


def mixed_lengths(count=256):
    """Return lengths that vary as those of sentences do: uniform over 3..200."""
    return np.random.default_rng(0).integers(3, 201, count).tolist()


def vocabulary(size):
    """Return special tokens, letters and random words, the same in every run."""
    rng = random.Random(0)
    words = dict.fromkeys(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *string.ascii_lowercase])
    while len(words) < size:
        words["".join(rng.choices(string.ascii_lowercase, k=rng.randint(2, 9)))] = None
    return list(words)


def tokenizer_json(vocab_size):
    """Return a WordPiece tokenizer over `vocabulary`, built like BERT's."""
    vocab = {word: i for i, word in enumerate(vocabulary(vocab_size))}
    special = [{"id": vocab[name], "content": name, "single_word": False, "lstrip": False, "rstrip": False,
                "normalized": False, "special": True} for name in ("[PAD]", "[UNK]", "[CLS]", "[SEP]")]  # fmt: skip
    return json.dumps({
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": special,
        "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True,
                       "strip_accents": None, "lowercase": True},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {"type": "BertProcessing",
                           "sep": ["[SEP]", vocab["[SEP]"]], "cls": ["[CLS]", vocab["[CLS]"]]},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                  "max_input_chars_per_word": 100, "vocab": vocab},
    }).encode()  # fmt: skip
