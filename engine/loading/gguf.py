"""Read a model from a GGUF file of llama.cpp, for load.py; families/gguf.py says how such files hold a family."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ..base.errors import InputError, UnsupportedError, WeightsError, shown
from ..base.functions import power
from ..base.lazy import lazy
from ..families import ARCHITECTURES, get_family
from ..families.fields import number
from ..families.gguf import DIVISORS, Architecture
from ..families.parts import Part, Parts, Weights
from ..files.gguf import GgufFile
from ..files.reading import naming, within
from ..model.config import LINEAR_MAPS, ModelConfig
from ..model.generation_config import GenerationConfig
from ..model.precision import BLOCKS, FORMATS, STORED
from ..model.text_config import TextConfig
from ..programs.operations import Parameter
from ..text.vocabularies import gguf_bytes_alone, gguf_ends, gguf_keeps_space, read_gguf_tokenizer
from ..weights.bfloat16 import widened
from ..weights.blocks import plain_numbers, quantize_q8_0, to_q8_0
from ..weights.model import Model, Transformer
from ..weights.modules import Dense
from ..weights.parameters import parameters_of, precision_of
from .chat import read_gguf_chat
from .gguf_settings import describe, pooled
from .hugging_face import assemble, assemble_part
from .source import Source

_AGAIN = "convert the model again with llama.cpp"
_MAPS = ("dense_2.weight", "dense_3.weight")
"""The linear maps of the pooled vector in files of EmbeddingGemma, in order."""
Finish = Callable[[ModelConfig, Weights], tuple[ModelConfig, Weights]]
"""The type of `families.parts.Part.finish`, by which a family changes the tensors of its Hugging Face files."""
_IDS = {"bos_token_id": "bos_token_id", "padding_token_id": "pad_token_id"}
"""The special tokens that a file states, and their keys in generation_config.json."""


class GgufSource(Source):
    """A GGUF file, or one of the files into which a model was split."""

    def __init__(self, path: Path, memory: str):
        self.path, self._memory = path, memory

    @lazy
    def _file(self) -> GgufFile:
        """The open file: its settings are read, and its tensors only on request."""
        return GgufFile(self.path, self._memory)

    @lazy
    def kind(self) -> str:
        """Return "encode" for a file that names a pooling, as an embedder's does, otherwise "generate"."""
        with naming(self.path, _AGAIN), within(self.path):
            return "encode" if pooled(self._file.settings) else "generate"

    def refuse_generator(self) -> None:
        """Raise `UnsupportedError` for a language model whose file names the pooling of an embedder."""
        name = str(self._file.settings.get("general.architecture"))
        if self.kind == "encode" and name in ARCHITECTURES and not ARCHITECTURES[name].encodes:
            raise self.refuse_use(f"{name}.pooling_type makes it an embedding model", kind="encode", command="encode")

    def read(self, kind: str, task: str | None) -> Model:
        """Return the model; matrices stay in the file's blocks unless another precision was asked for."""
        self.refuse_task(task, "a file has none; leave it out")
        with naming(self.path, _AGAIN), within(self.path):
            if kind == "encode":
                if self.kind != kind:
                    raise self.refuse_kind(kind, self.kind)
                return Model(encoder=self._encoder())
            if kind == "transcribe":
                raise self.refuse_kind(kind, self.kind)
            settings = self._file.settings
            parts = self.with_context(read_decoder(settings, self._file.shapes))
            text = replace(_text(settings), keeps_space=gguf_keeps_space(settings), chat=read_gguf_chat(settings))
            generation = GenerationConfig(**read_generation(settings))
            model = assemble(self.path, parts, self._arrays(), generation, text, text)
            assert model.decoder is not None
            return replace(model, decoder=self._with_blocks(model.decoder))

    def _encoder(self) -> Transformer:
        """Return the encoder of a file, with vectors scaled to unit length, as the programs of llama.cpp scale them."""
        settings, arrays = self._file.settings, self._arrays()
        part = read_encoder(settings, self._file.shapes)
        maps = [plain_numbers(arrays.pop(name)) for name in _MAPS if name in arrays]
        text = replace(_text(settings), pooling=(pooled(settings),), normalize=True)
        encoder = assemble_part(self.path, part, arrays, text)
        return replace(self._with_blocks(encoder), modules=tuple(Dense(weight) for weight in maps))

    def _arrays(self) -> dict[str, np.ndarray]:
        """Return all tensors; types without a kernel become blocks of q8_0 if the model stays in blocks."""
        return self._file.read(keep_float16=True, blocks_of=_to_q8_0 if self._keeps_blocks else None)

    @property
    def _keeps_blocks(self) -> bool:
        """Whether linear maps stay in the file's blocks, because the caller asked for no other precision."""
        return self.precision is None or self.precision in BLOCKS

    def _with_blocks(self, part: Transformer) -> Transformer:
        """Return a part with its linear maps in blocks of one precision, or unchanged unless blocks are kept."""
        return _in_blocks(part) if self._keeps_blocks else part


def _text(settings: Mapping[str, Any]) -> TextConfig:
    """Return the text settings of a file: its tokenizer, which turns tokens into text as llama.cpp does."""
    return TextConfig(read_gguf_tokenizer(settings), bytes_alone=gguf_bytes_alone(settings))


def _in_blocks(part: Transformer) -> Transformer:
    """Return a part whose linear maps are all in blocks if one of them is: the others become q8_0.

    q8_0 has more bits than every type of GGUF without a kernel here, except F32, F16 and BF16.
    """
    config, weights = part.config, dict(part.weights)
    for name, parameter in parameters_of(config).items():
        if name in weights and STORED.get(weights[name].dtype) in BLOCKS:
            if not _fits(parameter, weights[name]):
                weights[name] = plain_numbers(weights[name])        # float32, for the checks to report a wrong shape
            elif parameter.kind == "table":     # the other formats of blocks are for linear maps alone
                weights[name] = to_q8_0(weights[name])
    if precision_of(config, weights) in BLOCKS:
        for name, parameter in parameters_of(config).items():
            if parameter.kind == "linear" and name in weights and weights[name].shape == parameter.shape:
                weights[name] = _to_q8_0(name, widened(weights[name]), parameter.heads)
    return replace(part, weights=weights)


def _to_q8_0(name: str, numbers: np.ndarray, heads: int = 1) -> np.ndarray:
    """Return a float32 matrix [N, K] in q8_0; raises `WeightsError`, with its name, for numbers that q8_0 cannot hold.

    heads: how many heads the K inputs come from.
    """
    try:
        return quantize_q8_0(numbers, heads)
    except (InputError, WeightsError) as error:
        raise WeightsError(f"{shown(name)}: {error}") from None


def _fits(parameter: Parameter, stored: np.ndarray) -> bool:
    """Return whether stored blocks [N, blocks of a row] have the parameter's shape, and none spans two input heads."""
    form = FORMATS[STORED[stored.dtype]]
    if parameter.kind == "small" or stored.shape != form.shape(parameter.shape, parameter.heads):
        return False
    head_width = parameter.shape[1] // parameter.heads
    return head_width % FORMATS["q8_0"].block == 0      # blocks have 32 numbers in every format


def read_decoder(settings: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> Parts:
    """Return the decoder that the settings of a file and the shapes of its tensors describe.

    Raises `WeightsError` or `UnsupportedError`.
    """
    kind, values, stated = describe(settings, shapes)
    family = get_family(values)
    if kind.encodes or family.read_generator is None:
        raise UnsupportedError(f"{shown(settings['general.architecture'])} is an encoder; load it with Engine")
    part = family.read_generator(values).decoder
    config = _with_biases(part.config, kind, shapes)
    config = replace(config, logits="own" if "output.weight" in shapes else "tied", logits_bias="output.bias" in shapes)
    if not any(name.startswith("rope_factors_") for name in shapes):
        return Parts(_part(kind, part, config))
    # LongRoPE: one table of factors up to the length of the training, and another one for longer sequences
    trained = stated.get("rope.scaling.original_context_length")
    if type(trained) is not int or not 2 <= trained <= config.max_positions:
        raise WeightsError("rope.scaling.original_context_length must be a number from 2 to the context_length, "
                           f"{config.max_positions}, not {shown(trained)}")
    [attention] = config.attention_kinds
    long = replace(config, attention_kinds=(
        replace(attention, rotary_factor=number(dict(stated), "rope.scaling.attn_factor", 1.0)),))
    return Parts(_part(kind, part, replace(long, max_positions=trained), table="short"),
                 long_decoder=_part(kind, part, long, table="long"))


def read_encoder(settings: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> Part:
    """Return the encoder that the settings of a file and the shapes of its tensors describe.

    Raises `WeightsError` or `UnsupportedError`.
    """
    kind, values, _ = describe(settings, shapes)
    family = get_family(values)
    if family.read_encoder is None:
        raise UnsupportedError(f"{shown(settings['general.architecture'])} is a language model, which gives no "
                               "vectors; load it with Generator")
    part = family.read_encoder(values)
    return _part(kind, part, _with_biases(part.config, kind, shapes))


def _part(kind: Architecture, part: Part, config: ModelConfig, table: str | None = None) -> Part:
    """Return how a part is read from a file. part: how the family reads it from Hugging Face files.

    table: which table of LongRoPE the rotary frequencies are divided by, "short" or "long"; None for none.
    """
    finish = part.finish if kind.finishes else None
    return Part(config, kind.names, partial(_as_hugging_face, kind.neighbours, table, finish), text=part.text)


def _with_biases(config: ModelConfig, kind: Architecture, shapes: Mapping[str, tuple[int, ...]]) -> ModelConfig:
    """Return the configuration with biases for those linear maps that have one in layer 0 of the file."""
    biases: set[str] = set()
    for name, ours in kind.names.layer.items():
        if f"blk.0.{name}.bias" in shapes:      # ours: attention.query, or attention.qkv, which joins several maps
            biases |= {part.rpartition(".")[2] for part in kind.names.joined.get(ours, (ours,))}
    return replace(config, biases=tuple(name for name in LINEAR_MAPS if name in biases))


def read_generation(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ids of a file's special tokens, by their keys in generation_config.json."""
    ids = {ours: settings[f"tokenizer.ggml.{key}"] for key, ours in _IDS.items() if f"tokenizer.ggml.{key}" in settings}
    ends = gguf_ends(settings)
    return ids | ({"eos_token_id": ends} if ends else {})


def _as_hugging_face(neighbours: bool, table: str | None, finish: Finish | None, config: ModelConfig,
                     weights: Weights) -> tuple[ModelConfig, Weights]:
    """Return the configuration and the weights in the form of a Hugging Face file; it is a `Part.finish`.

    neighbours: whether rows 2i and 2i+1 of a head rotate together; in a Hugging Face file, rows i and i + d/2 do.
    table: the table of LongRoPE to use, "short" or "long"; None for none. finish: the hook of the family, which runs
    last; None where files hold its result.
    """
    weights = dict(weights)
    divisors = {name: weights.pop(name) for name in list(weights) if name.startswith(DIVISORS)}
    name_of_divisors = DIVISORS if table is None else f"{DIVISORS} {table}"
    if name_of_divisors in divisors:
        config = _scaled(config, divisors[name_of_divisors])
    elif table is not None:
        raise WeightsError(f"the file has no tensor rope_factors_{table}.weight, beside another table of positions")
    if neighbours:
        heads = {"attention.query": config.num_heads, "attention.key": config.kv_heads}
        for name, array in weights.items():
            count = next((count for part, count in heads.items() if name.rpartition(".")[0].endswith(part)), 0)
            if count and array.shape[0] == count * config.head_width:
                # rows 0 1 2 3 ... of a head become 0 2 ... 1 3 ...
                pairs = array.reshape(count, config.head_width // 2, 2, *array.shape[1:])
                weights[name] = np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(array.shape)
    return (config, weights) if finish is None else finish(config, weights)


def _scaled(config: ModelConfig, divisors: np.ndarray) -> ModelConfig:
    """Return the configuration with the rotary frequencies theta^(-2i/r) / divisors[i], for r columns that rotate."""
    numbers, kinds = widened(divisors).astype(np.float64), []
    for kind in config.attention_kinds:
        width = kind.rotary_width or config.head_width
        if kind.rotary_theta is None:
            kinds.append(kind)
            continue
        if numbers.shape != (width // 2,) or not (np.isfinite(numbers) & (numbers >= 1e-3)).all():
            raise WeightsError(f"rope_freqs.weight must hold a number of at least 0.001 for each of the {width // 2} "
                               f"pairs of columns of a head, not an array of shape {list(numbers.shape)}")
        frequencies = power(kind.rotary_theta, -2 * np.arange(width // 2) / width) / numbers
        kinds.append(replace(kind, rotary_frequencies=tuple(frequencies.tolist())))
    return replace(config, attention_kinds=tuple(kinds))
