"""Make the golden files of the families with rotary positions, beside ModernBERT: what they compute in float64.

    python -m tests.golden.make.rotary_encoders [NAME ...]

The script writes the folders that `MODELS` lists, or only those named, in tests/golden. scaffold.py says what they
hold.

NeoBERT is not in transformers: `neobert` computes what its own code does. The script stops unless EuroBERT of
transformers gives the same within 1e-10, with the rows of queries and keys in the order of its rotation.
"""

from collections.abc import Mapping
from functools import partial
from types import SimpleNamespace

import torch
from safetensors.torch import load_file, save_file
from transformers import EuroBertConfig, EuroBertModel

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

MODELS = (
    Golden("nomic_own", options={"vocab_size": VOCAB, "hidden_size": 36, "num_attention_heads": 3,
                                 "intermediate_size": 29, "num_hidden_layers": 2, "max_position_embeddings": 320}),
    Golden("gte_own", "GteForMaskedLM", options={
        "vocab_size": VOCAB, "hidden_size": 44, "num_attention_heads": 2, "intermediate_size": 27,
        "num_hidden_layers": 2, "max_position_embeddings": 320, "type_vocab_size": 1,
        "rope_parameters": {"rope_type": "linear", "rope_theta": 20000.0 * 8, "factor": 8 ** (2 / 22)}}),
    *(Golden(name) for name in (
        "eurobert_old", "eurobert_new", "jina_v3", "qwen3_new", "llama_encoder", "mistral_encoder",
        "qwen2_encoder")),
    *(Golden(name, new_names=True) for name in ("nomic_new", "gte_new", "jina_v3_new")),
    Golden("qwen3_old", "Qwen3Model"), Golden("qwen2_both_ways", "Qwen2Model", torch.bfloat16),
    Golden("neobert_own", "NeoBERT", torch.bfloat16), Golden("neobert_short", "NeoBERT", torch.float16),
    Golden("neobert_long", "NeoBERT"),
)  # fmt: skip


def main() -> None:
    write_models(MODELS, expect, save)


def save(golden: Golden) -> None:
    """Write a model; NeoBERT's tensors have its own names."""
    if golden.kind == "NeoBERT":
        save_file(neobert_tensors(golden), golden.folder / "model.safetensors", {"format": "pt"})
    else:
        save_model(golden)


def expect(golden: Golden) -> None:
    """Write the expected.npz of a model."""
    if golden.kind == "NeoBERT":
        expect_neobert(golden)
        return
    # The code of a folder attends both ways, which transformers does with a mask that is given.
    both_ways = golden.own_config.get("is_causal") is False
    bias = torch.zeros(1, 1, 300, 300, dtype=torch.float64) if both_ways else None
    save_expected(golden, given={"bias": bias})


def neobert_tensors(golden: Golden) -> dict[str, torch.Tensor]:
    """Return random tensors under NeoBERT's own names."""
    config, generator = golden.own_config, torch.Generator().manual_seed(0)
    D, hidden = config["hidden_size"], (2 * config["intermediate_size"] // 3 + 7) // 8 * 8
    shapes: dict[str, tuple[int, ...]] = {"model.encoder.weight": (VOCAB, D), "model.layer_norm.weight": (D,),
                                          "decoder.bias": (VOCAB,)}  # fmt: skip
    for i in range(config["num_hidden_layers"]):
        shapes |= {f"model.transformer_encoder.{i}.{name}.weight": shape for name, shape in {
            "qkv": (3 * D, D), "wo": (D, D), "ffn.w12": (2 * hidden, D), "ffn.w3": (D, hidden),
            "attention_norm": (D,), "ffn_norm": (D,)}.items()}  # fmt: skip
    return {name: (torch.randn(shape, generator=generator) * 0.2 + name.endswith("norm.weight")).to(golden.stored)
            for name, shape in shapes.items()}  # fmt: skip


def neobert(stored: Mapping[str, torch.Tensor], golden: Golden) -> Forward:
    """Return the computation of NeoBERT's own code, in float64."""
    H, layers = golden.own_config["num_attention_heads"], golden.own_config["num_hidden_layers"]
    eps = golden.own_config["norm_eps"]

    def forward(ids: torch.Tensor) -> SimpleNamespace:
        def norm(name: str, x: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.rms_norm(x, x.shape[-1:], stored[f"{name}.weight"], eps)

        x = stored["encoder.weight"][ids]
        B, T, D = x.shape
        frequencies = 10000.0 ** -(torch.arange(0, D // H, 2, dtype=torch.float64) / (D // H))
        turns = torch.polar(torch.ones(T, D // H // 2, dtype=torch.float64),
                            torch.arange(T, dtype=torch.float64)[:, None] * frequencies)  # fmt: skip

        def turn(y: torch.Tensor) -> torch.Tensor:
            pairs = torch.view_as_complex(y.reshape(B, T, H, -1, 2))
            return torch.view_as_real(pairs * turns[:, None]).flatten(3)

        for i in range(layers):
            layer = f"transformer_encoder.{i}"
            qkv = norm(f"{layer}.attention_norm", x) @ stored[f"{layer}.qkv.weight"].T
            q, k, v = qkv.view(B, T, H, -1).chunk(3, dim=-1)
            q, k, v = (y.transpose(1, 2) for y in (turn(q), turn(k), v))
            context = torch.nn.functional.scaled_dot_product_attention(q, k, v)
            x = x + context.transpose(1, 2).reshape(B, T, D) @ stored[f"{layer}.wo.weight"].T
            gate, up = (norm(f"{layer}.ffn_norm", x) @ stored[f"{layer}.ffn.w12.weight"].T).chunk(2, dim=-1)
            x = x + torch.nn.functional.silu(gate) * up @ stored[f"{layer}.ffn.w3.weight"].T
        return SimpleNamespace(last_hidden_state=norm("layer_norm", x))

    return partial(run, forward)


def eurobert_of(stored: Mapping[str, torch.Tensor], golden: Golden) -> dict[str, torch.Tensor]:
    """Return NeoBERT's tensors under the names of EuroBERT, which rotates columns c and c + d/2, not 2c and 2c + 1."""
    H, tensors = golden.own_config["num_attention_heads"], {"embed_tokens.weight": stored["encoder.weight"],
                                                            "norm.weight": stored["layer_norm.weight"]}  # fmt: skip
    for i in range(golden.own_config["num_hidden_layers"]):
        here, there = f"transformer_encoder.{i}", f"layers.{i}"
        qkv = stored[f"{here}.qkv.weight"].unflatten(0, (H, 3, -1, 2))      # the two columns of a pair are neighbours
        for part, rows in zip("qkv", qkv.unbind(1), strict=True):
            rows = rows if part == "v" else rows.transpose(1, 2)
            tensors[f"{there}.self_attn.{part}_proj.weight"] = rows.flatten(0, 2)
        gate, up = stored[f"{here}.ffn.w12.weight"].chunk(2)
        tensors |= {f"{there}.mlp.gate_proj.weight": gate, f"{there}.mlp.up_proj.weight": up}
        names = {"wo": "self_attn.o_proj", "ffn.w3": "mlp.down_proj", "attention_norm": "input_layernorm",
                 "ffn_norm": "post_attention_layernorm"}  # fmt: skip
        tensors |= {f"{there}.{new}.weight": stored[f"{here}.{own}.weight"] for own, new in names.items()}
    return tensors


def expect_neobert(golden: Golden) -> None:
    """Write the expected.npz of NeoBERT; its mistakes are those of EuroBERT with other settings."""
    stored = {name.removeprefix("model."): tensor.double()
              for name, tensor in load_file(golden.folder / "model.safetensors").items() if name != "decoder.bias"}
    tensors, own = eurobert_of(stored, golden), golden.own_config
    config = EuroBertConfig(
        **{key: own[key] for key in ("vocab_size", "hidden_size", "num_attention_heads", "num_hidden_layers")},
        intermediate_size=len(tensors["layers.0.mlp.up_proj.weight"]), rms_norm_eps=own["norm_eps"],
        attn_implementation="eager", pad_token_id=0, rope_parameters={"rope_type": "default", "rope_theta": 10000.0})

    def in_eurobert(config: EuroBertConfig) -> Forward:
        model = EuroBertModel(config).double().eval()
        model.load_state_dict(tensors)
        return partial(run, model)

    with float64_throughout(EuroBertModel):
        wrong = ((name, in_eurobert(other)) for name, other in wrong_settings(golden, config))
        make_expected(golden, neobert(stored, golden), stored, second=in_eurobert(config), wrong=wrong)


if __name__ == "__main__":
    main()
