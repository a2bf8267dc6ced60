"""Make the golden files of the families whose attention adds a bias by distance: what they compute in float64.

    python -m tests.golden.make.distance_biases [NAME ...]

The script writes the folders that `MODELS` lists, or only those named, in tests/golden. scaffold.py says what they
hold.

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
    bias[h, j] = table[bucket(j), h]        T5 and MPNet: one table for all layers; umT5: one for each
    bucket(j) = |j|, or where |j| is at least e: min(h - 1, e + floor((h - e) * log(|j| / e) / log(farthest / e))),
                and h more where j > 0      h is half the number of buckets, and e half of h; logarithms in float32

Each mistake has to change the vectors by at least 3e-4, which is 10 times what the tests allow. JinaBERT is not in
transformers: `jina` computes what its own code does. The script stops unless GTE of transformers gives the same within
1e-10, with all positions 0, so that nothing is rotated, and with ALiBi as its mask.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import GteConfig, GteModel

from .scaffold import (
    VOCAB,
    Forward,
    Golden,
    float64_throughout,
    make_expected,
    run,
    save_expected,
    save_model,
    write_models,
    wrong_settings,
)

OPTIONS: dict[str, Any] = {"lengths": (1, 2, 17, 127, 128, 129, 131, 300), "first_id": 6, "least": 3e-4,
                           "step": lambda length: 1 if length < 20 else 5 if length < 129 else 8}
SPREAD = {"relative_attention_bias": 1.0, "SelfAttention.q": 0.06}
"""T5 does not divide scores by sqrt(d), and learns smaller queries instead."""

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
        torch.float32, own_config=MPNET_OWN),
    "mpnet_head": Golden(
        "MPNetForMaskedLM",
        MPNET | {"num_hidden_layers": 2, "hidden_size": 36, "num_attention_heads": 6, "intermediate_size": 47,
                 "layer_norm_eps": 0.01, "pad_token_id": 5},
        torch.float16),
    "mpnet_relu": Golden(
        "MPNetForSequenceClassification",
        MPNET | {"num_hidden_layers": 2, "hidden_size": 38, "num_attention_heads": 2, "intermediate_size": 41,
                 "hidden_act": "relu"},
        torch.bfloat16),
    "t5_own": Golden(
        "T5EncoderModel", T5 | {"num_layers": 3, "d_model": 34, "num_heads": 4, "d_kv": 11, "d_ff": 61},
        torch.float16, own_config=T5_OWN),
    "t5_gated": Golden(
        "T5ForConditionalGeneration",
        T5 | {"num_layers": 2, "d_model": 41, "num_heads": 3, "d_kv": 10, "d_ff": 33, "layer_norm_epsilon": 0.01,
              "feed_forward_proj": "gated-gelu"},
        torch.bfloat16),
    "t5_near": Golden(
        "T5ForTokenClassification",
        T5 | {"num_layers": 2, "d_model": 36, "num_heads": 3, "d_kv": 12, "d_ff": 30, "feed_forward_proj": "gated-silu",
              "relative_attention_num_buckets": 14, "relative_attention_max_distance": 20},
        torch.float32),
    **{f"{family.lower()}_{name}": Golden(f"{family}{heads}", T5 | sizes, dtype) for family in ("MT5", "UMT5")
       for name, heads, sizes, dtype in (
           ("encoder", "EncoderModel", {"num_layers": 2, "d_model": 34, "num_heads": 2, "d_kv": 13, "d_ff": 37},
            torch.float32),
           ("whole", "ForConditionalGeneration", {
               "num_layers": 2, "d_model": 29, "num_heads": 4, "d_kv": 9, "d_ff": 45, "layer_norm_epsilon": 0.01},
            torch.bfloat16),
           ("relu", "ForSequenceClassification" if family == "MT5" else "ForTokenClassification", {
               "num_layers": 2, "d_model": 40, "num_heads": 5, "d_kv": 8, "d_ff": 50, "feed_forward_proj": "relu",
               "relative_attention_num_buckets": 20, "relative_attention_max_distance": 64}, torch.float16))},
    "jina_v2": Golden("JinaBERT", {}, torch.float16, own_config=JINA_OWN),
    "jina_v2_short": Golden("JinaBERT", {}, torch.float32, own_config=JINA_SHORT),
    "jina_v2_relu": Golden(
        "JinaBERT", {}, torch.bfloat16, own_config=JINA_OWN | {
            "feed_forward_type": "reglu", "hidden_size": 36, "num_attention_heads": 6, "num_hidden_layers": 2,
            "type_vocab_size": 1}),
}  # fmt: skip


def main() -> None:
    write_models(MODELS, expect, save)


def save(folder: Path, golden: Golden) -> None:
    """Write a model; JinaBERT's tensors have its own names."""
    if golden.kind == "JinaBERT":
        save_file(jina_tensors(golden), folder / "model.safetensors", {"format": "pt"})
    else:
        save_model(folder, replace(golden, spread=SPREAD))


def expect(folder: Path, golden: Golden) -> None:
    """Write the expected.npz of a model; buckets of distances are defined by a logarithm in float32."""
    if golden.kind == "JinaBERT":
        expect_jina(folder, golden)
        return
    family = golden.kind.partition("For")[0].removesuffix("Model").removesuffix("Encoder")
    kind = getattr(transformers, f"{family}Model" if family == "MPNet" else f"{family}EncoderModel")
    save_expected(folder, golden, kind=kind, float64={"tensors": False, "angles": False}, **OPTIONS)


JINA_LAYER = {
    "attention.self.query": "self_attn.q_proj", "attention.self.key": "self_attn.k_proj",
    "attention.self.value": "self_attn.v_proj", "attention.output.dense": "self_attn.o_proj",
    "attention.output.LayerNorm": "post_attention_layernorm", "mlp.wo": "mlp.down_proj",
    "mlp.layernorm": "post_mlp_layernorm",
}  # fmt: skip
"""The names of a layer in JinaBERT, and in GTE of transformers."""
ACTS = {"geglu": torch.nn.functional.gelu, "reglu": torch.nn.functional.relu}


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


def slopes(heads: int) -> torch.Tensor:
    """Return ALiBi's slopes: 2^(-8i/n) of the power of two n below, then of 2n every second one."""
    n = 2 ** int(math.log2(heads))
    return torch.tensor([2.0 ** (-8 * i / n) for i in range(1, n + 1)]
                        + [2.0 ** (-4 * i / n) for i in range(1, 2 * (heads - n), 2)], dtype=torch.float64)


def alibi(steepness: torch.Tensor, T: int) -> torch.Tensor:
    """Return what is added to scores [H, T, T]."""
    places = torch.arange(T)
    return (places[None] - places[:, None]).abs() * -steepness[:, None, None]


def jina(stored: Mapping[str, torch.Tensor], config: dict[str, Any]) -> Forward:
    """Return the computation of JinaBERT's own code, in float64."""
    H, act = config["num_attention_heads"], ACTS[config["feed_forward_type"]]

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
        bias = alibi(steepness, T)
        for i in range(config["num_hidden_layers"]):
            layer = f"encoder.layer.{i}"
            q, k, v = (linear(f"{layer}.attention.self.{name}", x).view(B, T, H, -1).transpose(1, 2)
                       for name in ("query", "key", "value"))  # fmt: skip
            context = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=bias)
            context = linear(f"{layer}.attention.output.dense", context.transpose(1, 2).reshape(B, T, D))
            x = norm(f"{layer}.attention.output.LayerNorm", context + x)
            gated, plain = linear(f"{layer}.mlp.gated_layers", x).split(config["intermediate_size"], dim=-1)
            x = norm(f"{layer}.mlp.layernorm", linear(f"{layer}.mlp.wo", act(gated) * plain) + x)
        return SimpleNamespace(last_hidden_state=x)

    return partial(run, forward)


def gte_of(stored: Mapping[str, torch.Tensor], layers: int) -> dict[str, torch.Tensor]:
    """Return JinaBERT's tensors under the names of GTE."""
    tensors = {name: tensor for name, tensor in stored.items() if name.startswith("embeddings.")}
    for i in range(layers):
        own = {name.removeprefix(f"encoder.layer.{i}."): tensor for name, tensor in stored.items()}
        for theirs, name in JINA_LAYER.items():
            tensors |= {f"layers.{i}.{name}.{kind}": own[f"{theirs}.{kind}"] for kind in ("weight", "bias")}
        gate, up = own["mlp.gated_layers.weight"].chunk(2)
        tensors |= {f"layers.{i}.mlp.gate_proj.weight": gate, f"layers.{i}.mlp.up_proj.weight": up}
    return tensors


def expect_jina(folder: Path, golden: Golden) -> None:
    """Write the expected.npz of JinaBERT; its mistakes are those of GTE with other settings or another mask."""
    stored = {name: tensor.double() for name, tensor in load_file(folder / "model.safetensors").items()}
    own, steepness = golden.own_config, slopes(golden.own_config["num_attention_heads"])
    tensors, bias = gte_of(stored, own["num_hidden_layers"]), alibi(steepness, 300)
    same = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size",
            "layer_norm_eps", "type_vocab_size")  # fmt: skip
    config = GteConfig(**{name: own[name] for name in same}, hidden_act=own["feed_forward_type"].replace("glu", "lu"),
                       attn_implementation="eager")  # fmt: skip

    def in_gte(config: GteConfig, bias: torch.Tensor) -> Forward:
        model = GteModel(config).double().eval()
        model.load_state_dict(tensors)
        return lambda ids, types=None: run(model, ids, types, bias=bias[None],
                                           position_ids=torch.zeros(1, len(ids), dtype=torch.long))

    with float64_throughout(GteModel):
        wrong = [(name, in_gte(other, bias)) for name, other in wrong_settings(golden, config)
                 if "rope" not in name]  # fmt: skip
        wrong += [(name, in_gte(config, mistake)) for name, mistake in {
            "no bias": 0 * bias, "slopes in the other order": alibi(steepness.flip(0), 300),
            "distances from the key to the query": bias.tril() - bias.triu(),
            "a bias added before the division": bias / math.sqrt(own["hidden_size"] / len(bias))}.items()]
        make_expected(folder, jina(stored, own), stored, second=in_gte(config, bias), wrong=wrong, **OPTIONS)


if __name__ == "__main__":
    main()
