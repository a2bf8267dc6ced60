"""Read a language model from a GGUF file, of llama.cpp.

The keys are those of docs/gguf.md of ggml, with the name of the architecture in front. They become the keys of a
config.json, so that the families of `llama.py` check them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ..base.errors import InputError, UnsupportedError, WeightsError, shown
from ..base.functions import power
from ..families import llama
from ..families.names import Names
from ..families.parts import Part, Parts, Weights
from ..files.gguf import GgufFile
from ..files.reading import naming, within
from ..model.config import ModelConfig
from ..model.generation_config import GenerationConfig
from ..model.precision import BLOCKS, FORMATS, STORED
from ..model.text_config import TextConfig
from ..programs.operations import Parameter
from ..text.vocabularies import gguf_ends, gguf_keeps_space, read_gguf_tokenizer
from ..weights.bfloat16 import widened
from ..weights.blocks import quantize_q8_0, to_q8_0, widen_blocks
from ..weights.model import Model
from ..weights.parameters import parameters_of, precision_of
from .chat import read_gguf_chat
from .hugging_face import assemble
from .source import Source

_DIVISORS = "rotary_divisors"
"""The tensor that divides the frequencies of the rotary embedding, as Llama 3.1 scales them; `_restored` takes it."""

NAMES = Names(
    prefix="",
    embeddings={
        "token_embd.weight": "embeddings.word",
        "output_norm.weight": "final_norm.weight",
        "output.weight": "logits.weight",
        "rope_freqs.weight": _DIVISORS,
    },
    layers="blk.",
    layer={
        "attn_norm": "attention.norm",
        "attn_q": "attention.query",
        "attn_k": "attention.key",
        "attn_v": "attention.value",
        "attn_output": "attention.output",
        "attn_q_norm": "attention.query_norm",
        "attn_k_norm": "attention.key_norm",
        "ffn_norm": "ffn.norm",
        "ffn_gate": "ffn.gate",
        "ffn_up": "ffn.up",
        "ffn_down": "ffn.down",
    },
    left_out=(),
)

ARCHITECTURES = {"llama": True, "qwen2": False, "qwen3": False}
"""The supported values of general.architecture, and whether the rows of queries and keys lie in another order: those
that a rotation turns together are neighbours, and not half a head apart."""

_KEYS = {
    "block_count": "num_hidden_layers",
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
}
_OPTIONAL = {"attention.head_count_kv": "num_key_value_heads", "attention.key_length": "head_dim",
             "rope.freq_base": "rope_theta"}  # fmt: skip
_IDS = {"bos_token_id": "bos_token_id", "padding_token_id": "pad_token_id"}


class GgufSource(Source):
    """A GGUF file, or one of the files into which a model was split."""

    kind = "generate"

    def __init__(self, path: Path, memory: str):
        self.path, self._memory = path, memory

    def read(self, kind: str, task: str | None) -> Model:
        """Return as `Source.read`."""
        if kind in ("encode", "transcribe"):
            raise self.refuse_kind(kind, self.kind)
        self.refuse_task(task, "a file has none; leave it out")
        file = GgufFile(self.path, self._memory)
        with naming(self.path, "convert the model again with llama.cpp"), within(self.path):
            parts = Parts(None, read_decoder(file.settings, file.shapes))
            text = TextConfig(read_gguf_tokenizer(file.settings), keeps_space=gguf_keeps_space(file.settings),
                              chat=read_gguf_chat(file.settings))
            generation = GenerationConfig(**read_generation(file.settings))
            kept = self.precision is None or self.precision in BLOCKS
            arrays = file.read(keep_float16=True, blocks_of=_rounded if kept else None)
            model = assemble(self.path, parts, arrays, generation, text, text)
            return _in_blocks(model) if kept else model


def _in_blocks(model: Model) -> Model:
    """Return a model in one of the precisions of blocks if any linear map is in blocks, with all others in q8_0.

    q8_0 has more bits than the types of GGUF without a kernel of their own, but F32, F16 and BF16.
    """
    assert model.decoder is not None
    config, weights = model.decoder.config, dict(model.decoder.weights)
    for name, parameter in parameters_of(config).items():
        if name in weights and STORED.get(weights[name].dtype) in BLOCKS:
            if not _fits(parameter, weights[name]):
                weights[name] = widen_blocks(weights[name], weights[name].shape[1] * FORMATS["q8_0"].block)
            elif parameter.kind == "table":
                weights[name] = to_q8_0(weights[name])
    if precision_of(config, weights) in BLOCKS:
        for name, parameter in parameters_of(config).items():
            if parameter.kind == "linear" and name in weights and weights[name].shape == parameter.shape:
                weights[name] = _rounded(name, widened(weights[name]), parameter.heads)
    return replace(model, decoder=replace(model.decoder, weights=weights))


def _rounded(name: str, numbers: np.ndarray, heads: int = 1) -> np.ndarray:
    """Return a float32 matrix in q8_0; raises `WeightsError` for numbers that it does not hold."""
    try:
        return quantize_q8_0(numbers, heads)
    except (InputError, WeightsError) as error:
        raise WeightsError(f"{shown(name)}: {error}") from None


def _fits(parameter: Parameter, stored: np.ndarray) -> bool:
    """Return whether blocks [N, blocks of a row] end with each of the heads that the inputs come from."""
    return parameter.kind != "small" and stored.shape == FORMATS[STORED[stored.dtype]].shape(
        parameter.shape, parameter.heads) and parameter.shape[1] // parameter.heads % FORMATS["q8_0"].block == 0


def read_decoder(settings: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> Part:
    """Return the decoder that the settings of a file and the shapes of its tensors describe.

    Raises `WeightsError` or `UnsupportedError`.
    """
    name = settings.get("general.architecture")
    if not isinstance(name, str) or name not in ARCHITECTURES:
        raise UnsupportedError(f"general.architecture {shown(name)} is not supported; supported are "
                               f"{', '.join(ARCHITECTURES)}")
    own = {key.removeprefix(f"{name}."): value for key, value in settings.items() if key.startswith(f"{name}.")}
    _refuse(name, own)
    if missing := [key for key in _KEYS if key not in own]:
        raise WeightsError(f"the settings lack {name}.{missing[0]}")
    values = {"model_type": name} | {key: own[old] for old, key in (_KEYS | _OPTIONAL).items() if old in own}
    for key, value in values.items():
        if isinstance(value, list | np.ndarray):
            raise UnsupportedError(f"{name} has another {key} in each layer, which is not supported")
    words = shapes.get("token_embd.weight", ())
    if len(words) != 2:
        raise WeightsError("the file has no matrix token_embd.weight, the word table")
    values |= {"vocab_size": words[0], "tie_word_embeddings": "output.weight" not in shapes}
    config = llama.read_config(values, name)
    return Part(config, NAMES, partial(_restored, ARCHITECTURES[name]))


def read_generation(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the special tokens of a file, under their names in generation_config.json."""
    found = {own: settings[f"tokenizer.ggml.{key}"] for key, own in _IDS.items() if f"tokenizer.ggml.{key}" in settings}
    ends = gguf_ends(settings)
    return found | ({"eos_token_id": ends} if ends else {})


def _refuse(name: str, own: Mapping[str, Any]) -> None:
    """Raise `UnsupportedError` for settings that change the computation in a way that the engine does not support."""
    plain = {"rope.scaling.type": "none", "expert_count": 0, "attention.sliding_window": 0, "use_parallel_residual": 0}
    for key, expected in plain.items():
        if _differs(own.get(key, expected), expected):
            raise UnsupportedError(f"{name}.{key} = {shown(own[key])} is not supported; only {expected!r} is")
    width, heads = own.get("embedding_length"), own.get("attention.head_count")
    if type(width) is int and type(heads) is int and heads > 0:
        head = own.get("attention.key_length", width // heads)
        for key in ("rope.dimension_count", "attention.value_length"):
            if key in own and _differs(own[key], head):
                raise UnsupportedError(f"{name}.{key} = {shown(own[key])} is not supported; only the width of a head, "
                                       f"{shown(head)}, is")


def _differs(value: Any, expected: Any) -> bool:
    """Return whether a setting, which may be a list, has another value than the expected one."""
    return isinstance(value, list | np.ndarray) or value != expected


def _restored(neighbours: bool, config: ModelConfig, weights: Weights) -> tuple[ModelConfig, Weights]:
    """Return the model with its scaled frequencies and the rows of queries and keys as in a Hugging Face file."""
    if _DIVISORS in weights:
        weights = dict(weights)
        config = _scaled(config, weights.pop(_DIVISORS))
    if not neighbours:
        return config, weights
    heads = {"attention.query": config.num_heads, "attention.key": config.kv_heads}
    restored = dict(weights)
    for name, array in weights.items():
        count = next((count for part, count in heads.items() if name.rpartition(".")[0].endswith(part)), 0)
        if count and array.shape[0] == count * config.head_width:
            pairs = array.reshape(count, config.head_width // 2, 2, *array.shape[1:])
            restored[name] = np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(array.shape)
    return config, restored


def _scaled(config: ModelConfig, divisors: np.ndarray) -> ModelConfig:
    """Return a configuration whose rotary embedding has the frequencies theta^(-2i/d) / divisors[i]."""
    [kind], pairs = config.attention_kinds, config.head_width // 2
    numbers = widened(divisors).astype(np.float64)
    if numbers.shape != (pairs,) or not (np.isfinite(numbers) & (numbers >= 1e-3)).all() or kind.rotary_theta is None:
        raise WeightsError(f"rope_freqs.weight must hold a number of at least 0.001 for each of the {pairs} pairs of "
                           f"columns of a head, not an array of shape {list(numbers.shape)}")
    frequencies = power(kind.rotary_theta, -2 * np.arange(pairs) / config.head_width) / numbers
    return replace(config, attention_kinds=(replace(kind, rotary_frequencies=tuple(frequencies.tolist())),))
