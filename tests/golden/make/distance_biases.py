"""Make the golden files of the families whose attention adds a bias by distance: what they compute in float64.

    python -m tests.golden.make.distance_biases [NAME ...]

The script writes the folders that `MODELS` lists, or only those named, in tests/golden, as rotary_encoders.py does:
each with config.json, model.safetensors and expected.npz, which holds the sequences of `LENGTHS`.

The computation, for one sequence of T tokens. D, H, d, F as in engine/model/config.py; x @ W^T + b is written W(x), and
an absent b adds nothing:

    x = word[ids] + position[first, first + 1, ...] + token_type[types]     an absent table adds nothing
    x = norm(x)                                                             post-norm only
    for layer i = 0 .. L-1:
        a = x, or norm(x) in a pre-norm model
        q, k, v = q(a), k(a), v(a) as [T, H, d]
        p = softmax over s of scale * (q_t . k_s) + bias[head, s - t]
        x = x + o(heads of p v side by side)
        x = norm(x)                                                         post-norm
        a = x, or norm(x) in a pre-norm model
        x = x + down(act(gate(a)) * up(a))                                  without a gate: x + down(act(up(a)))
        x = norm(x)                                                         post-norm
    hidden = x, or norm(x) in a pre-norm model

    bias[h, j] = -slope[h] * |j|            ALiBi: slopes 1/2, 1/4 ... with H = 8; see `slopes`
    bias[h, j] = table[bucket of j, h]      T5 and MPNet: one table for all layers; umT5: one for each; see `bucket`

The script computes everything a second time in NumPy, and stops unless the two agree within 1e-10. It also stops unless
each mistake of `mistakes` changes the stored rows of the sequence of 129 tokens by at least 3e-4, which is 10 times
what the tests allow. JinaBERT is not in transformers: `open_jina` computes what its own code does.
"""

import importlib
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import numpy as np
import torch
import transformers
from safetensors.torch import load_file, save_file

from .expected import VOCAB, Golden, make_expected, write_models
from .rotary_encoders import Float64Torch, Model, Tensors, gelu, run

LENGTHS = (1, 2, 17, 127, 128, 129, 131, 300)
LEAST_CHANGE = 3e-4


@dataclass(frozen=True)
class Plain:
    """What the NumPy computation needs beside the tensors, written out by hand rather than read by transformers."""

    heads: int
    eps: float
    activation: str
    scale: float | None = None
    """None for 1/sqrt(d)."""
    buckets: tuple[int, int] | None = (32, 128)
    """The number of buckets and the distance at which the last one begins; None for ALiBi."""
    first_position: int = 0
    pre: bool = False
    """Pre-norm with RMS norm; else post-norm with LayerNorm."""
    bias: str = "after"
    """"after" the scale; mistakes are "before" it, "reversed" distances, "first" layer only, "no" bias at all."""
    reversed_slopes: bool = False


MPNET = {"vocab_size": VOCAB, "max_position_embeddings": 310}
MPNET_OWN = {
    "_name_or_path": "microsoft/mpnet-base", "architectures": ["MPNetModel"], "attention_probs_dropout_prob": 0.1,
    "bos_token_id": 0, "eos_token_id": 2, "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "hidden_size": 42,
    "initializer_range": 0.02, "intermediate_size": 50, "layer_norm_eps": 1e-05, "max_position_embeddings": 310,
    "model_type": "mpnet", "num_attention_heads": 3, "num_hidden_layers": 3, "pad_token_id": 1,
    "relative_attention_num_buckets": 32, "torch_dtype": "float32", "transformers_version": "4.8.2",
    "vocab_size": VOCAB,
}  # fmt: skip

T5_OWN = {
    "architectures": ["T5EncoderModel"], "d_ff": 61, "d_kv": 11, "d_model": 34, "decoder_start_token_id": 0,
    "dropout_rate": 0.1, "eos_token_id": 1, "feed_forward_proj": "relu", "initializer_factor": 1.0,
    "is_encoder_decoder": True, "layer_norm_epsilon": 1e-06, "model_type": "t5", "n_positions": 512,
    "num_decoder_layers": 3, "num_heads": 4, "num_layers": 3, "output_past": True, "pad_token_id": 0,
    "relative_attention_num_buckets": 32, "task_specific_params": {"summarization": {"prefix": "summarize: "}},
    "torch_dtype": "float16", "transformers_version": "4.17.0", "use_cache": True, "vocab_size": VOCAB,
}  # fmt: skip
T5 = {"vocab_size": VOCAB, "num_decoder_layers": 1}

JINA_OWN = {
    "_name_or_path": "jinaai/jina-bert-implementation", "architectures": ["JinaBertForMaskedLM"],
    "attention_probs_dropout_prob": 0.0, "attn_implementation": "torch", "auto_map": {
        "AutoConfig": "jinaai/jina-bert-implementation--configuration_bert.JinaBertConfig",
        "AutoModel": "jinaai/jina-bert-implementation--modeling_bert.JinaBertModel",
        "AutoModelForMaskedLM": "jinaai/jina-bert-implementation--modeling_bert.JinaBertForMaskedLM"},
    "classifier_dropout": None, "emb_pooler": "mean", "feed_forward_type": "geglu", "gradient_checkpointing": False,
    "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "hidden_size": 42, "initializer_range": 0.02,
    "intermediate_size": 31, "layer_norm_eps": 1e-12, "max_position_embeddings": 320, "model_type": "bert",
    "num_attention_heads": 3, "num_hidden_layers": 3, "pad_token_id": 0, "position_embedding_type": "alibi",
    "torch_dtype": "float16", "transformers_version": "4.26.0", "type_vocab_size": 2, "use_cache": True,
    "vocab_size": VOCAB,
}  # fmt: skip
JINA_SHORT = {
    "model_type": "bert", "position_embedding_type": "alibi", "feed_forward_type": "geglu", "hidden_size": 40,
    "intermediate_size": 29, "num_attention_heads": 4, "num_hidden_layers": 2, "max_position_embeddings": 320,
    "layer_norm_eps": 0.01, "vocab_size": VOCAB, "type_vocab_size": 2,
}  # fmt: skip

MODELS = {
    "mpnet_own": Golden(
        "MPNetModel",
        MPNET | {"num_hidden_layers": 3, "hidden_size": 42, "num_attention_heads": 3, "intermediate_size": 50,
                 "layer_norm_eps": 1e-5},
        torch.float32, Plain(3, 1e-5, "gelu", first_position=2), own_config=MPNET_OWN),
    "mpnet_head": Golden(
        "MPNetForMaskedLM",
        MPNET | {"num_hidden_layers": 2, "hidden_size": 36, "num_attention_heads": 6, "intermediate_size": 47,
                 "layer_norm_eps": 0.01, "pad_token_id": 5},
        torch.float16, Plain(6, 0.01, "gelu", first_position=2)),
    "mpnet_relu": Golden(
        "MPNetForSequenceClassification",
        MPNET | {"num_hidden_layers": 2, "hidden_size": 38, "num_attention_heads": 2, "intermediate_size": 41,
                 "hidden_act": "relu"},
        torch.bfloat16, Plain(2, 1e-12, "relu", first_position=2)),
    "t5_own": Golden(
        "T5EncoderModel", T5 | {"num_layers": 3, "d_model": 34, "num_heads": 4, "d_kv": 11, "d_ff": 61},
        torch.float16, Plain(4, 1e-6, "relu", 1.0, pre=True), own_config=T5_OWN),
    "t5_gated": Golden(
        "T5ForConditionalGeneration",
        T5 | {"num_layers": 2, "d_model": 41, "num_heads": 3, "d_kv": 10, "d_ff": 33, "layer_norm_epsilon": 0.01,
              "feed_forward_proj": "gated-gelu"},
        torch.bfloat16, Plain(3, 0.01, "gelu_tanh", 1.0, pre=True)),
    "t5_near": Golden(
        "T5ForTokenClassification",
        T5 | {"num_layers": 2, "d_model": 36, "num_heads": 3, "d_kv": 12, "d_ff": 30, "feed_forward_proj": "gated-silu",
              "relative_attention_num_buckets": 14, "relative_attention_max_distance": 20},
        torch.float32, Plain(3, 1e-6, "silu", 1.0, (14, 20), pre=True)),
    "mt5_encoder": Golden(
        "MT5EncoderModel", T5 | {"num_layers": 2, "d_model": 34, "num_heads": 2, "d_kv": 13, "d_ff": 37},
        torch.float32, Plain(2, 1e-6, "gelu_tanh", 1.0, pre=True)),
    "mt5_whole": Golden(
        "MT5ForConditionalGeneration",
        T5 | {"num_layers": 2, "d_model": 29, "num_heads": 4, "d_kv": 9, "d_ff": 45, "layer_norm_epsilon": 0.01},
        torch.bfloat16, Plain(4, 0.01, "gelu_tanh", 1.0, pre=True)),
    "mt5_relu": Golden(
        "MT5ForSequenceClassification",
        T5 | {"num_layers": 2, "d_model": 40, "num_heads": 5, "d_kv": 8, "d_ff": 50, "feed_forward_proj": "relu",
              "relative_attention_num_buckets": 20, "relative_attention_max_distance": 64},
        torch.float16, Plain(5, 1e-6, "relu", 1.0, (20, 64), pre=True)),
    "umt5_encoder": Golden(
        "UMT5EncoderModel", T5 | {"num_layers": 2, "d_model": 34, "num_heads": 2, "d_kv": 13, "d_ff": 37},
        torch.float32, Plain(2, 1e-6, "gelu_tanh", 1.0, pre=True)),
    "umt5_whole": Golden(
        "UMT5ForConditionalGeneration",
        T5 | {"num_layers": 2, "d_model": 29, "num_heads": 4, "d_kv": 9, "d_ff": 45, "layer_norm_epsilon": 0.01},
        torch.bfloat16, Plain(4, 0.01, "gelu_tanh", 1.0, pre=True)),
    "umt5_relu": Golden(
        "UMT5ForTokenClassification",
        T5 | {"num_layers": 2, "d_model": 40, "num_heads": 5, "d_kv": 8, "d_ff": 50, "feed_forward_proj": "relu",
              "relative_attention_num_buckets": 20, "relative_attention_max_distance": 64},
        torch.float16, Plain(5, 1e-6, "relu", 1.0, (20, 64), pre=True)),
    "jina_v2": Golden("JinaBERT", {}, torch.float16, Plain(3, 1e-12, "gelu", buckets=None), own_config=JINA_OWN),
    "jina_v2_short": Golden("JinaBERT", {}, torch.float32, Plain(4, 0.01, "gelu", buckets=None),
                            own_config=JINA_SHORT),
    "jina_v2_relu": Golden(
        "JinaBERT", {}, torch.bfloat16, Plain(6, 1e-12, "relu", buckets=None),
        own_config=JINA_OWN | {"feed_forward_type": "reglu", "hidden_size": 36, "num_attention_heads": 6,
                               "num_hidden_layers": 2, "type_vocab_size": 1}),
}  # fmt: skip


def main() -> None:
    write_models(MODELS, save_model, save_expected)


def save_model(folder: Path, golden: Golden) -> None:
    """Write a model of random numbers that are large enough for a mistake to show."""
    if golden.kind == "JinaBERT":
        folder.mkdir(exist_ok=True)
        save_file(jina_tensors(golden), folder / "model.safetensors", {"format": "pt"})
        return
    kind = getattr(transformers, golden.kind)
    model = kind(kind.config_class(**golden.config))
    torch.manual_seed(0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            one = name.lower().endswith("norm.weight")
            # T5 does not divide scores by sqrt(d), and learns smaller queries instead.
            spread = {"relative_attention_bias": 1.0, "SelfAttention.q": 0.06}
            parameter.normal_(1.0 if one else 0.0, next((spread[part] for part in spread if part in name), 0.2))
    model.to(golden.dtype).save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)


def save_expected(folder: Path, golden: Golden) -> None:
    """Write expected.npz beside a model, from the weights as they are stored."""
    with float64_throughout(golden.kind):
        model, tensors = (open_jina if golden.kind == "JinaBERT" else open_model)(folder, golden)
        make_expected(folder, partial(run, model), LENGTHS, first_id=6, kinds=len(tensors.get("token_type", ())),
                      step=lambda length: 1 if length < 20 else 5 if length < 129 else 8, least=LEAST_CHANGE,
                      second=partial(numpy_forward, tensors, golden.plain),
                      mistakes=((name, partial(numpy_forward, *wrong)) for name, *wrong in
                                mistakes(tensors, golden.plain)))  # fmt: skip


LAYER = {
    "attention.attn.": "", "attention.LayerNorm": "norm1", "intermediate.dense": "up", "output.dense": "down",
    "output.LayerNorm": "norm2",
    "layer.0.SelfAttention.": "", "layer.0.layer_norm": "norm1", "layer.1.layer_norm": "norm2",
    "layer.1.DenseReluDense.wi_0": "gate", "layer.1.DenseReluDense.wi_1": "up", "layer.1.DenseReluDense.wi": "up",
    "layer.1.DenseReluDense.wo": "down",
}  # fmt: skip
AROUND = {
    "embeddings.word_embeddings.weight": "word", "embeddings.position_embeddings.weight": "position",
    "embeddings.LayerNorm.": "norm.", "shared.weight": "word", "encoder.final_layer_norm.": "norm.",
    "encoder.relative_attention_bias.weight": "table", "encoder.layer.": "layers.", "encoder.block.": "layers.",
}  # fmt: skip
"""The names in `numpy_forward`, by the names of transformers."""


def open_model(folder: Path, golden: Golden) -> tuple[Model, Tensors]:
    """Return a model in float64, and its tensors under the names that numpy_forward knows."""
    family = golden.kind.partition("For")[0].removesuffix("Model").removesuffix("Encoder")
    kind = getattr(transformers, f"{family}Model" if family == "MPNet" else f"{family}EncoderModel")
    model, loading = kind.from_pretrained(folder, dtype=torch.float64, attn_implementation="eager",
                                          output_loading_info=True)  # fmt: skip
    missing = [name for name in loading["missing_keys"] if not name.startswith(("pooler.", "encoder.embed_tokens"))]
    if missing or loading["mismatched_keys"]:
        raise SystemExit(f"{folder}: transformers does not load the model as a whole: {loading}")
    tensors = {}
    for name, tensor in model.eval().double().state_dict().items():
        for theirs, own in (AROUND | LAYER).items():
            name = name.replace(theirs, own)
        tensors[name.replace("relative_attention_bias.weight", "table")] = tensor.numpy()
    return model, tensors


JINA_LAYER = {"attention.self.query": "q", "attention.self.key": "k", "attention.self.value": "v",
              "attention.output.dense": "o", "attention.output.LayerNorm": "norm1", "mlp.wo": "down",
              "mlp.layernorm": "norm2"}  # fmt: skip


def jina_tensors(golden: Golden) -> dict[str, torch.Tensor]:
    """Return random tensors under JinaBERT's own names."""
    config, generator = golden.own_config, torch.Generator().manual_seed(0)
    D, F = config["hidden_size"], config["intermediate_size"]
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (VOCAB, D), "embeddings.LayerNorm.weight": (D,),
        "embeddings.token_type_embeddings.weight": (config["type_vocab_size"], D), "embeddings.LayerNorm.bias": (D,),
        "pooler.dense.weight": (D, D), "pooler.dense.bias": (D,)}  # fmt: skip
    for i in range(config["num_hidden_layers"]):
        for theirs in JINA_LAYER:
            weight = (D,) if "orm" in theirs else (D, F) if theirs == "mlp.wo" else (D, D)
            shapes |= {f"encoder.layer.{i}.{theirs}.weight": weight, f"encoder.layer.{i}.{theirs}.bias": (D,)}
        shapes[f"encoder.layer.{i}.mlp.gated_layers.weight"] = (2 * F, D)
    return {name: (torch.randn(shape, generator=generator) * 0.2 + name.lower().endswith("norm.weight"))
            .to(golden.dtype) for name, shape in shapes.items()}  # fmt: skip


def open_jina(folder: Path, golden: Golden) -> tuple[Model, Tensors]:
    """Return JinaBERT in float64, and its tensors under the names that numpy_forward knows."""
    stored = {name: tensor.double() for name, tensor in load_file(folder / "model.safetensors").items()}
    config, H = golden.own_config, golden.plain.heads
    act = {"geglu": torch.nn.functional.gelu, "reglu": torch.nn.functional.relu}[config["feed_forward_type"]]

    def power_of_2(heads: int) -> list[float]:
        first = 2 ** -(2 ** -(math.log2(heads) - 3))
        return [first * first**i for i in range(heads)]

    nearest = 2 ** int(math.log2(H))
    steepness = torch.tensor(power_of_2(nearest) + power_of_2(2 * nearest)[0::2][: H - nearest], dtype=torch.float64)

    def linear(name: str, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.linear(x, stored[f"{name}.weight"], stored.get(f"{name}.bias"))

    def norm(name: str, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.layer_norm(x, x.shape[-1:], stored[f"{name}.weight"], stored[f"{name}.bias"],
                                              config["layer_norm_eps"])  # fmt: skip

    def forward(ids: torch.Tensor, token_type_ids: torch.Tensor | None = None) -> SimpleNamespace:
        types = torch.zeros_like(ids) if token_type_ids is None else token_type_ids
        x = stored["embeddings.word_embeddings.weight"][ids] + stored["embeddings.token_type_embeddings.weight"][types]
        x = norm("embeddings.LayerNorm", x)
        B, T, D = x.shape
        places = torch.arange(T)
        alibi = (places[None] - places[:, None]).abs() * -steepness[:, None, None]
        for i in range(config["num_hidden_layers"]):
            layer = f"encoder.layer.{i}"
            q, k, v = (linear(f"{layer}.attention.self.{name}", x).view(B, T, H, -1).transpose(1, 2)
                       for name in ("query", "key", "value"))  # fmt: skip
            context = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=alibi)
            context = linear(f"{layer}.attention.output.dense", context.transpose(1, 2).reshape(B, T, D))
            x = norm(f"{layer}.attention.output.LayerNorm", context + x)
            gated, plain = linear(f"{layer}.mlp.gated_layers", x).split(config["intermediate_size"], dim=-1)
            x = norm(f"{layer}.mlp.layernorm", linear(f"{layer}.mlp.wo", act(gated) * plain) + x)
        return SimpleNamespace(last_hidden_state=x)

    tensors = {"word": stored["embeddings.word_embeddings.weight"],
               "token_type": stored["embeddings.token_type_embeddings.weight"],
               "norm.weight": stored["embeddings.LayerNorm.weight"], "norm.bias": stored["embeddings.LayerNorm.bias"]}
    for i in range(config["num_hidden_layers"]):
        for theirs, own in JINA_LAYER.items():
            for part in ("weight", "bias"):
                tensors[f"layers.{i}.{own}.{part}"] = stored[f"encoder.layer.{i}.{theirs}.{part}"]
        halves = stored[f"encoder.layer.{i}.mlp.gated_layers.weight"].chunk(2)
        tensors[f"layers.{i}.gate.weight"], tensors[f"layers.{i}.up.weight"] = halves
    return forward, {name: tensor.numpy() for name, tensor in tensors.items()}


@contextmanager
def float64_throughout(kind: str) -> Iterator[None]:
    """Let transformers' own code compute in float64 where it names float32, as T5's norm does.

    `Tensor.float` stays, because buckets of distances are defined by a logarithm in float32.
    """
    if kind == "JinaBERT":
        yield
        return
    modeling = importlib.import_module(getattr(transformers, kind).__module__)
    with patch.object(modeling, "torch", Float64Torch()):
        yield


def bucket(distance: int, buckets: int, farthest: int) -> int:
    """Return the row of T5's table for a distance, which is the key's position minus the query's."""
    half, size = buckets // 2, abs(distance)
    exact = half // 2
    if size >= exact:
        ratio = np.log(np.float32(size) / np.float32(exact)) / np.float32(math.log(farthest / exact))
        size = min(half - 1, exact + int(ratio * np.float32(half - exact)))
    return size + half * (distance > 0)


def slopes(heads: int) -> list[float]:
    """Return ALiBi's slopes: 2^(-8i/n) of the power of two n below, then of 2n every second one."""
    n = 1
    while 2 * n <= heads:
        n *= 2
    return [2.0 ** (-8 * i / n) for i in range(1, n + 1)] + [2.0 ** (-4 * i / n) for i in range(1, 2 * (heads - n), 2)]


def bias_of(tensors: Tensors, plain: Plain, layer: int, T: int) -> np.ndarray:
    """Return the bias [H, T, T] of a layer."""
    distance = np.arange(T) - np.arange(T)[:, None]
    if plain.bias == "reversed":
        distance = -distance
    if plain.bias == "no" or (plain.bias == "first" and layer > 0):
        return np.zeros((plain.heads, T, T))
    if plain.buckets is None:
        steps = slopes(plain.heads)[:: -1 if plain.reversed_slopes else 1]
        size = np.abs(distance) if plain.bias != "reversed" else distance
        return -np.array(steps)[:, None, None] * size
    table = tensors.get(f"layers.{layer}.table", tensors.get("table", tensors.get("layers.0.table")))
    assert table is not None
    rows = np.array([bucket(j, *plain.buckets) for j in range(1 - T, T)])
    return np.moveaxis(table[rows[distance + T - 1]], 2, 0)


def numpy_forward(tensors: Tensors, plain: Plain, ids: np.ndarray, types: np.ndarray | None) -> np.ndarray:
    """Compute what the docstring above says, in float64: hidden [T, D]."""

    def linear(name: str, x: np.ndarray) -> np.ndarray:
        return x @ tensors[f"{name}.weight"].T + tensors.get(f"{name}.bias", 0.0)

    def norm(name: str, x: np.ndarray) -> np.ndarray:
        centred = x if plain.pre else x - x.mean(-1, keepdims=True)
        scaled = centred / np.sqrt((centred * centred).mean(-1, keepdims=True) + plain.eps)
        return scaled * tensors[f"{name}.weight"] + tensors.get(f"{name}.bias", 0.0)

    acts: dict[str, Callable[[np.ndarray], np.ndarray]] = {
        "gelu": gelu, "relu": lambda x: np.maximum(x, 0.0), "silu": lambda x: x / (1.0 + np.exp(-x)),
        "gelu_tanh": lambda x: 0.5 * x * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3))),
    }  # fmt: skip
    act, T = acts[plain.activation], len(ids)
    x = tensors["word"][ids]
    if "position" in tensors:
        x = x + tensors["position"][plain.first_position : plain.first_position + T]
    if "token_type" in tensors:
        x = x + tensors["token_type"][np.zeros(T, int) if types is None else types]
    x = x if plain.pre else norm("norm", x)
    for i in range(max(int(name.split(".")[1]) for name in tensors if name.startswith("layers.")) + 1):
        layer = f"layers.{i}"
        a = norm(f"{layer}.norm1", x) if plain.pre else x
        q, k, v = (linear(f"{layer}.{part}", a).reshape(T, plain.heads, -1).swapaxes(0, 1) for part in "qkv")
        scale, bias = plain.scale or q.shape[-1] ** -0.5, bias_of(tensors, plain, i, T)
        products = q @ k.swapaxes(1, 2)
        scores = scale * (products + bias) if plain.bias == "before" else scale * products + bias
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        x = x + linear(f"{layer}.o", (weights @ v).swapaxes(0, 1).reshape(T, -1))
        x = x if plain.pre else norm(f"{layer}.norm1", x)
        a = norm(f"{layer}.norm2", x) if plain.pre else x
        if f"{layer}.gate.weight" in tensors:
            hidden = act(linear(f"{layer}.gate", a)) * linear(f"{layer}.up", a)
        else:
            hidden = act(linear(f"{layer}.up", a))
        x = x + linear(f"{layer}.down", hidden)
        x = x if plain.pre else norm(f"{layer}.norm2", x)
    return norm("norm", x) if plain.pre else x


def mistakes(tensors: Tensors, plain: Plain) -> Iterator[tuple[str, Tensors, Plain]]:
    """Yield (name, tensors, plain) of each mistake that an implementation could make."""

    def swapped(a: str, b: str) -> Tensors:
        other = {a: b, b: a}
        return {name: tensors[name.replace(part, other[part])] if (part := next((p for p in other if p in name), ""))
                else array for name, array in tensors.items()}  # fmt: skip

    if any(".gate." in name for name in tensors):
        yield "gate and up swapped", swapped(".gate.", ".up."), plain
    yield "queries and keys swapped", swapped(".q.", ".k."), plain
    if plain.scale is None:
        yield "the bias added before the division", tensors, replace(plain, bias="before")
        yield "scores that are not divided", tensors, replace(plain, scale=1.0)
    else:
        yield "scores divided by sqrt(d)", tensors, replace(plain, scale=None)
    for bias, name in (("no", "no bias"), ("first", "a bias in the first layer only"),
                       ("reversed", "distances from the key to the query")):  # fmt: skip
        yield name, tensors, replace(plain, bias=bias)
    if plain.buckets is None:
        yield "slopes in the other order", tensors, replace(plain, reversed_slopes=True)
    else:
        buckets, farthest = plain.buckets
        yield "half of the farthest distance", tensors, replace(plain, buckets=(buckets, farthest // 2))
        yield "two buckets less", tensors, replace(plain, buckets=(buckets - 2, farthest))
    if "layers.1.table" in tensors:
        first = {name: tensors["layers.0.table"] if name.endswith(".table") else array
                 for name, array in tensors.items()}  # fmt: skip
        yield "the first layer's table in all layers", first, plain
    if "position" in tensors:
        yield "positions from 0", tensors, replace(plain, first_position=0)
        yield "positions from 1", tensors, replace(plain, first_position=1)
    others = {"gelu": "gelu_tanh", "gelu_tanh": "gelu", "relu": "gelu", "silu": "gelu_tanh"}
    if plain.activation in others:
        yield "the other activation", tensors, replace(plain, activation=others[plain.activation])
    if plain.eps >= 1e-3:
        yield "another epsilon", tensors, replace(plain, eps=1e-5)
    biases = {name.split(".", 2)[2] for name in tensors if name.startswith("layers.") and name.endswith("bias")}
    for part in sorted(biases - {"k.bias"}):  # a bias of all keys moves all scores of a query alike
        yield f"no {part}", {n: a * (not n.endswith(f".{part}")) for n, a in tensors.items()}, plain


if __name__ == "__main__":
    main()
