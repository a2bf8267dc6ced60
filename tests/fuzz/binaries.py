"""Read mutated files of torch.save, GGUF and CTranslate2, and mutated generating models and tokenizers.

GGUF and CTranslate2 files get odd settings, shapes and types first, and then changed integers and bytes.
"""

import json
import random
import struct
from collections.abc import Callable, Collection, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from engine import Model, load_model
from engine.backends.reference import ReferenceBackend
from engine.backends.steps import Row
from engine.files.ctranslate2 import CTranslate2File
from engine.files.folder import ModelFolder
from engine.files.gguf import GgufFile
from engine.files.gguf_blocks import TYPES
from engine.files.torch_checkpoint import read_checkpoint
from engine.loading.gguf_settings import KEYS
from engine.model.run_config import RunConfig
from engine.text.tokenizer import Tokenizer
from engine.text.vocabularies import read_vocabulary
from engine.text.vocabularies.fairseq import read_m2m
from engine.text.vocabularies.marian import read_marian
from tests.fuzz.mutate import bytes_of, changed_file, checkpoint_of, json_of, safetensors_of, words_of
from tests.tools.ctranslate2_files import TYPES as ARRAYS
from tests.tools.ctranslate2_files import ctranslate2
from tests.tools.gguf_files import PLAIN, Blocks, gguf
from tests.tools.paths import CHECKPOINTS as TORCH_FILES
from tests.tools.paths import CTRANSLATE2, DECODERS, LANGUAGE_TOKENIZERS, MARIAN_TOKENIZER, TOKENIZERS
from tests.tools.tiny_models import CONFIGS, hf_tensors, write_json
from tests.tools.torch_files import checkpoint

from ..tools.encoders import GENERATORS, engine_of, load_encoder
from ..tools.gguf_encoders import FILES, file_of
from ..tools.golden_gguf import WRITTEN, config_of, gguf_of

TEXTS = ["the cat sat", "", "Grüße 北京 😀 \u200b\x07 １", ("a b", "c"), "x" * 300, "<s> [MASK] ▁"]

_INTEGERS = (0, 1, 2, 3, 7, 31, 32, 33, 255, 256, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63,
             2**64 - 1)
_SETTINGS: tuple[Any, ...] = (
    0, -1, 7, 0.5, True, "", "llama", "ü" * 50, [], ["a", "b"], ["x"] * 300, np.arange(5, dtype=np.int32),
    np.array([True, False]), np.zeros(0, np.float32), np.array([np.nan], np.float64), 2**31,
)
_SHAPES = ((1,), (3,), (2, 3), (32,), (2, 64), (256,), (1, 512), (2, 1, 32), (1, 1, 1, 1), (256,), (3, 256), (0,))


def integers_of(rng: random.Random, data: bytes, most: int = 400) -> bytes:
    """Overwrite up to three integers among the first `most` bytes, and in one case of five other bytes, too."""
    result = bytearray(data)
    for _ in range(rng.choice((0, 0, 1, 2))):
        size = rng.choice((1, 2, 4, 4, 8, 8))
        at = rng.randrange(max(1, min(most, len(result)) - size))
        result[at:at + size] = struct.pack("<Q", rng.choice(_INTEGERS))[:size]
    changed = bytes(result)
    return bytes_of(rng, changed) if rng.random() < 0.2 else changed


def _tensor(rng: random.Random) -> np.ndarray | Blocks:
    shape = rng.choice(_SHAPES)
    if rng.random() < 0.4:
        return np.zeros(shape, rng.choice(tuple(PLAIN)))
    number = rng.choice([number for number, kind in TYPES.items() if kind.dequantize or rng.random() < 0.1])
    kind = TYPES[number]
    return Blocks(number, shape, rng.randbytes(int(np.prod(shape)) // kind.size * kind.nbytes))


def _gguf(rng: random.Random, place: Path) -> None:
    settings = {f"k{i}": rng.choice(_SETTINGS) for i in range(rng.randrange(5))}
    alignment = rng.choice((32, 32, 32, 32, 1, 64, 24))
    if alignment != 32 or rng.random() < 0.3:
        settings["general.alignment"] = rng.choice((alignment, alignment, alignment, 0, "x"))
    if rng.random() < 0.05:
        settings["split.count"] = rng.choice((0, 1, 2, "x"))
    tensors = {f"t{i}": _tensor(rng) for i in range(rng.randrange(4))}
    (place / "m.gguf").write_bytes(integers_of(rng, gguf(
        settings, tensors, version=rng.choice((2, 3)), alignment=alignment)))
    file = GgufFile(place / "m.gguf", rng.choice(("map", "copy")))
    with np.errstate(all="ignore"):
        file.read(lambda name: None if name == "t2" else name, keep_float16=rng.random() < 0.5)


def _ctranslate2(rng: random.Random, place: Path) -> None:
    arrays: dict[str, np.ndarray] = {}
    for i in range(rng.randrange(5)):
        shape = rng.choice((*_SHAPES, ()))
        arrays[f"v{i}"] = np.ones(shape, rng.choice(tuple(ARRAYS)))
        if rng.random() < 0.5:
            rows = rng.choice(((), shape[:1], (1,), (3,)))
            arrays[f"v{i}_scale"] = np.full(rows, rng.choice((1.0, 1.0, 3e38, 1e-45, 0.0, np.nan)), np.float32)
    aliases = {f"a{i}": f"v{rng.randrange(2)}" for i in range(rng.randrange(3))}
    data = ctranslate2(arrays, aliases, version=rng.choice((2, 3, 5, 6, 6)))
    (place / "model.bin").write_bytes(integers_of(rng, data))
    file = CTranslate2File(place / "model.bin", rng.choice(("map", "copy")))
    file.read(lambda name: None if name == "v2" else name, keep_float16=rng.random() < 0.5)


def tokenizer_settings(rng: random.Random) -> dict[str, Any]:
    """Return the settings of a small tokenizer of a GGUF file."""
    words = ["<unk>", "<s>", "</s>", "a", "b", "ab", "▁", "▁a", "c", *(f"<0x{i:02X}>" for i in range(256))]
    kind = rng.choice(("gpt2", "llama"))
    types = np.array([2, 3, 3, *(1,) * 6, *(6,) * 256], np.int32)
    own = {"model": kind, "tokens": words, "token_type": types, "bos_token_id": 1, "eos_token_id": 2}
    own |= {"pre": rng.choice(("gpt-2", "smollm", "qwen2", "llama-bpe")), "merges": ["a b", "▁ a"]} if kind == "gpt2" \
        else {"scores": -np.arange(len(words), dtype=np.float32), "add_space_prefix": rng.random() < 0.5}
    return {f"tokenizer.ggml.{key}": value for key, value in own.items()}


def _matrix(rng: random.Random, shape: tuple[int, ...], kinds: Collection[int]) -> np.ndarray | Blocks:
    """Return ones, or blocks of one of the types whose rows can have this length, most of them with small scales."""
    numbers = [number for number in kinds if TYPES[number].dequantize and shape[-1] % TYPES[number].size == 0]
    if len(shape) != 2 or not numbers or rng.random() < 0.2:
        return np.ones(shape, rng.choice((np.float32, np.float32, np.float16)))
    number = rng.choice(numbers)
    kind = TYPES[number]
    data = np.frombuffer(rng.randbytes(shape[0] * shape[1] // kind.size * kind.nbytes), np.uint8)
    if rng.random() < 0.9:
        data = data.reshape(-1, kind.nbytes).copy()
        data[:, [1, 3]] &= 0x2F     # of two numbers of float16, the first in the block
    return Blocks(number, shape, data.tobytes())


def write_gguf_model(rng: random.Random, path: Path, untouched: float = 0.5, kinds: Collection[int] = TYPES,
                     settings: Mapping[str, Any] | None = None) -> None:
    """Write a language model with matrices of these types of blocks.

    untouched: how often its settings are as they should be. settings: replace some of those of its architecture.
    """
    D, F = rng.choice(((8, 6), (64, 32), (64, 96)))
    own = {"block_count": 1, "context_length": 16, "embedding_length": D, "feed_forward_length": F,
           "attention.head_count": 2, "attention.head_count_kv": 1, "attention.key_length": D // 2,
           "attention.layer_norm_rms_epsilon": 1e-5, "rope.freq_base": 100.0} | dict(settings or {})  # fmt: skip
    name = rng.choice(("llama", "qwen2", "qwen3"))
    stated: dict[str, Any] = {"general.architecture": name} | {f"{name}.{key}": value for key, value in own.items()}
    stated |= tokenizer_settings(rng)
    for key in rng.sample(list(stated), 0 if rng.random() < untouched else rng.choice((1, 2))):
        stated[key] = rng.choice((*_SETTINGS, 2, 3, 4, 1.0, "none"))
    half = D // 2
    shapes = {"attn_norm": (D,), "attn_q": (D, D), "attn_k": (half, D), "attn_v": (half, D), "attn_output": (D, D),
              "ffn_norm": (D,), "ffn_gate": (F, D), "ffn_up": (F, D), "ffn_down": (D, F)}  # fmt: skip
    shapes |= {"attn_q_norm": (half,), "attn_k_norm": (half,)} if name == "qwen3" else {}
    tensors = {f"blk.0.{part}.weight": _matrix(rng, shape, kinds) for part, shape in shapes.items()}
    if name == "qwen2":
        tensors |= {f"blk.0.attn_{part}.bias": np.ones(rows, np.float32)
                    for part, rows in (("q", D), ("k", half), ("v", half))}
    tensors |= {"token_embd.weight": _matrix(rng, (265, D), kinds), "output_norm.weight": np.ones(D, np.float32)}
    if rng.random() < 0.2:
        tensors[rng.choice(list(tensors))] = np.ones(rng.choice(_SHAPES), np.float32)
    data = gguf(stated, tensors)
    path.write_bytes(integers_of(rng, data) if rng.random() < 0.2 else data)


def _gguf_model(rng: random.Random, place: Path) -> None:
    write_gguf_model(rng, place / "m.gguf")
    _run(load_model(place / "m.gguf", kind="generate", precision=rng.choice((None, None, "q8_0", "float32"))))


def _golden_gguf(rng: random.Random, place: Path) -> None:
    """Change the settings of a golden language model or encoder of any architecture, or the tensors or the bytes."""
    changes: dict[str, Any] = {}
    for _ in range(rng.choice((0, 1, 1, 2))):
        changes[rng.choice(OWN_SETTINGS)] = rng.choice((*_SETTINGS, None, 2, 3, 4, 6, 8, 1.0, 0.5, "none", "linear"))
    if rng.random() < 0.3:
        data, _ = file_of(rng.choice(list(FILES)), **changes)
    else:
        more = {rng.choice(("rope_freqs.weight", "rope_factors_long.weight", "output.weight", "blk.0.attn_q.bias")):
                np.ones(rng.choice(_SHAPES), np.float32)} if rng.random() < 0.2 else {}
        data = gguf_of(rng.choice(IN_GGUF), more, **changes)
    (place / "m.gguf").write_bytes(integers_of(rng, data, 4000) if rng.random() < 0.3 else data)
    model = load_model(place / "m.gguf", long_context=rng.random() < 0.1)
    if model.decoder is not None:
        _run(model)
    elif model.encoder.text is not None:
        Tokenizer(model.encoder.text, 64, 1)(TEXTS)


def _folder(rng: random.Random, place: Path) -> None:
    """Change the config, the settings or the tensors of a golden generating model."""
    source = rng.choice(FOLDERS)
    for name in ("config.json", "generation_config.json"):
        data = (source / name).read_bytes()
        (place / name).write_bytes(json_of(rng, data, WORDS) if rng.random() < 0.5 else data)
    data = (source / "model.safetensors").read_bytes()
    (place / "model.safetensors").write_bytes(safetensors_of(rng, data) if rng.random() < 0.2 else data)
    _run(load_model(place, kind="generate"))


def _converted(rng: random.Random, place: Path) -> None:
    """Change the files of a golden model of CTranslate2."""
    source = rng.choice(CONVERTED)
    for path in source.iterdir():
        data, changed = path.read_bytes(), rng.random() < 0.4
        change = integers_of if path.suffix == ".bin" else json_of
        (place / path.name).write_bytes(change(rng, data) if changed else data)
    _run(load_model(place, kind="generate"))


def _checkpoint(rng: random.Random, place: Path) -> None:
    """Change a file of torch.save."""
    path = place / "pytorch_model.bin"
    path.write_bytes(checkpoint_of(rng, rng.choice(CHECKPOINTS)))
    read_checkpoint(path, lambda key: None if key == "position_ids" else key, keep_float16=rng.random() < 0.5,
                    memory=rng.choice(["map", "copy"]))


def _encoder(rng: random.Random, place: Path) -> None:
    """Change the config or the checkpoint of an encoder."""
    family = rng.choice(sorted(ENCODERS))
    config, weights = json.dumps(CONFIGS[family]).encode(), ENCODERS[family]
    changed = rng.randrange(4)
    (place / "config.json").write_bytes(json_of(rng, config) if changed < 3 else config)
    (place / "pytorch_model.bin").write_bytes(checkpoint_of(rng, weights) if changed > 1 else weights)
    if rng.random() < 0.2:
        write_json(place / "pytorch_model.bin.index.json", {"weight_map": {"a": "pytorch_model.bin"}})
        (place / "pytorch_model.bin.index.json").write_bytes(
            json_of(rng, (place / "pytorch_model.bin.index.json").read_bytes()))
    engine = engine_of(load_encoder(place), threads=1, backend="reference")
    with np.errstate(all="ignore"):  # finite weights can still be so large that their products are not
        engine.forward([[0, 1, 2], []])


def _tokenizer(rng: random.Random, place: Path, files: Mapping[str, bytes], changed: Collection[str]) -> None:
    """Change some of the files of a tokenizer, read it, and make tokens of texts."""
    for name, data in files.items():
        (place / name).write_bytes(changed_file(rng, name, data) if name in changed else data)
    folder = ModelFolder(place)
    if sides := read_marian(folder):
        found = [sides.source, sides.target]
    else:
        found = [text for text in [read_m2m(folder) or read_vocabulary(folder)] if text is not None]
    for text in found:
        Tokenizer(text, 64, 1)(TEXTS)


def _marian(rng: random.Random, place: Path) -> None:
    _tokenizer(rng, place, MARIAN, {rng.choice(list(MARIAN))})


def _languages(rng: random.Random, place: Path) -> None:
    files = rng.choice(LANGUAGES)
    _tokenizer(rng, place, files, {rng.choice(list(files))})


def _vocabulary(rng: random.Random, place: Path) -> None:
    files = {"tokenizer_config.json": b'{"do_lower_case": true, "unk_token": "[UNK]"}'} | rng.choice(VOCABULARIES)
    large = [file for file in files if not file.endswith("g.json")]
    _tokenizer(rng, place, files, {rng.choice(sorted(files)), rng.choice(large or [*files])})


def _run(model: Model) -> None:
    """Compute logits, where the model is small and reads no source."""
    config = model.decoder.config
    if model.encoder is None and config.num_layers < 5:
        decoder = ReferenceBackend().prepare_decoder(config, model.decoder.weights, RunConfig())
        with np.errstate(all="ignore"):
            decoder.step([Row(decoder.open(), None, np.array([0, 1], np.int64))])
    if model.decoder.text is not None:
        Tokenizer(model.decoder.text, 64, 1)(TEXTS)


CHECKPOINTS = [path.read_bytes() for path in sorted(TORCH_FILES.glob("*.bin"))]
VOCABULARIES, LANGUAGES = ([{path.name: path.read_bytes() for path in folder.iterdir() if path.name != "expected.json"}
                            for folder in sorted(home.iterdir())] for home in (TOKENIZERS, LANGUAGE_TOKENIZERS))
ENCODERS = {family: checkpoint(hf_tensors(family), legacy=family == "roberta") for family in CONFIGS}
FOLDERS = sorted(path.parent for path in DECODERS.glob("*/expected.npz"))
CONVERTED = [path for path in sorted(CTRANSLATE2.iterdir()) if path.is_dir()]
MARIAN = {name: (MARIAN_TOKENIZER / name).read_bytes()
          for name in ("source.spm", "target.spm", "vocab.json")}  # fmt: skip
WORDS = ("model_type", *GENERATORS, "tie_word_embeddings", "scale_embedding", "head_dim", "num_key_value_heads",
         "sliding_window", "decoder_layers", "d_model", "rope_theta", "vocab_size", "eos_token_id",
         *words_of(*(import_module(GENERATORS[name].read_generator.__module__) for name in GENERATORS)))
IN_GGUF = [path.name for path in FOLDERS if config_of(path.name)["model_type"] in WRITTEN]
OWN_SETTINGS = tuple(f"ARCH.{key}" for key in (
    *KEYS, "attention.head_count_kv", "attention.key_length", "attention.value_length", "rope.freq_base",
    "rope.freq_base_swa", "rope.dimension_count", "rope.scaling.type", "rope.scaling.factor",
    "rope.scaling.original_context_length", "rope.scaling.attn_factor", "rope.scaling.finetuned", "logit_scale",
    "attention.sliding_window", "attention.sliding_window_pattern", "use_parallel_residual", "attention.clamp_kqv",
    "attention.max_alibi_bias", "attention.scale", "residual_scale", "embedding_scale", "final_logit_softcapping",
    "attn_logit_softcapping", "pooling_type", "attention.causal", "attention.layer_norm_epsilon",
    "attention.layer_norm_rms_epsilon", "expert_count")) + tuple(f"tokenizer.ggml.{key}" for key in (
        "model", "pre", "tokens", "token_type", "cls_token_id", "seperator_token_id", "normalizer.lowercase"))
KINDS: dict[str, Callable[[random.Random, Path], None]] = {
    "checkpoint": _checkpoint, "vocabulary": _vocabulary, "folder": _encoder,
    "GGUF file": _gguf, "CTranslate2 file": _ctranslate2, "GGUF model": _gguf_model, "generating folder": _folder,
    "CTranslate2 folder": _converted, "GGUF file of any architecture": _golden_gguf, "Marian's tokenizers": _marian,
    "tokenizers of languages": _languages,
}
