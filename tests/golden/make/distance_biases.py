"""Make the golden files of the families whose attention adds a bias by distance: what they compute in float64.

    python -m tests.golden.make.distance_biases [NAME ...]

The script writes the folders that `MODELS` lists, or only those named, in tests/golden. scaffold.py says what they
hold.

Each mistake has to change the vectors by at least 3e-4, which is 10 times what the tests allow. JinaBERT is not in
transformers: `jina` computes what its own code does. The script stops unless GTE of transformers gives the same within
1e-10, with all positions 0, so that nothing is rotated, and with ALiBi as its mask.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
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

MODELS = (
    *(Golden(name) for name in (
        "mpnet_own", "mpnet_head", "mpnet_relu", "t5_own", "t5_gated", "t5_near", "mt5_encoder", "mt5_whole",
        "mt5_relu", "umt5_encoder", "umt5_whole", "umt5_relu")),
    Golden("jina_v2", "JinaBERT", torch.float16), Golden("jina_v2_short", "JinaBERT", torch.float32),
    Golden("jina_v2_relu", "JinaBERT", torch.bfloat16),
)  # fmt: skip


def main() -> None:
    write_models(MODELS, expect, save)


def save(golden: Golden) -> None:
    """Write a model; JinaBERT's tensors have its own names."""
    if golden.kind == "JinaBERT":
        save_file(jina_tensors(golden), golden.folder / "model.safetensors", {"format": "pt"})
    else:
        save_model(replace(golden, spread=SPREAD))


def expect(golden: Golden) -> None:
    """Write the expected.npz of a model; buckets of distances are defined by a logarithm in float32."""
    if golden.kind == "JinaBERT":
        expect_jina(golden)
        return
    family = golden.type.__name__.partition("For")[0].removesuffix("Model").removesuffix("Encoder")
    kind = getattr(transformers, f"{family}Model" if family == "MPNet" else f"{family}EncoderModel")
    save_expected(golden, kind=kind, float64={"tensors": False, "angles": False}, **OPTIONS)


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
            .to(golden.stored) for name, shape in shapes.items()}  # fmt: skip


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


def expect_jina(golden: Golden) -> None:
    """Write the expected.npz of JinaBERT; its mistakes are those of GTE with other settings or another mask."""
    stored = {name: tensor.double() for name, tensor in load_file(golden.folder / "model.safetensors").items()}
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
        make_expected(golden, jina(stored, own), stored, second=in_gte(config, bias), wrong=wrong, **OPTIONS)


if __name__ == "__main__":
    main()
