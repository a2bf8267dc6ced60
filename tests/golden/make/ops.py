"""Make the golden values of `engine.ops`, computed by torch, transformers and the ONNX reference in float64.

    python -m tests.golden.make.ops

Writes tests/golden/ops/ops.npz. An entry `case/name` is an input or a result of one case; tests/ops/test_golden.py
says which function each case calls. Sizes are odd. Inputs are rounded to float32, in which they take half the space.
"""


import numpy as np
import onnx
import torch
import transformers.models.bloom.modeling_bloom as bloom
import transformers.models.gptj.modeling_gptj as gptj
import transformers.models.llama.modeling_llama as llama
from onnx.reference import ReferenceEvaluator
from torch.nn.functional import scaled_dot_product_attention
from transformers import LlamaConfig, T5Config
from transformers.models.t5.modeling_t5 import T5Attention

from tests.tools.paths import OPS

rng = np.random.default_rng(0)
arrays: dict[str, np.ndarray] = {}


def main() -> None:
    torch.set_default_dtype(torch.float64)
    torch_attention()
    onnx_attention()
    rotary()
    relative_positions()
    llama_parts()
    layers()
    for heads in (1, 2, 6, 8, 12, 20, 71):
        arrays[f"alibi/{heads}"] = bloom._get_alibi_slopes(heads, "cpu").numpy().astype(np.float64)
    np.savez_compressed(OPS / "ops.npz", **arrays)


def save(case: str, **values: object) -> None:
    for name, value in values.items():
        array = value.detach().numpy() if isinstance(value, torch.Tensor) else np.asarray(value)
        small = array.astype(np.float32) if array.dtype == np.float64 else array
        arrays[f"{case}/{name}"] = small if np.array_equal(small, array) else array


def normal(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape, np.float32).astype(np.float64)


def randomise(module: torch.nn.Module) -> None:
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.from_numpy(normal(*parameter.shape) * 0.5))


def make_qkv(B=2, H=4, G=4, T=5, S=7, d=6, e=6) -> dict[str, np.ndarray]:
    return {"q": normal(B, H, T, d), "k": normal(B, G, S, d), "v": normal(B, G, S, e)}


def torch_attention() -> None:
    def case(name: str, inputs: dict[str, np.ndarray], **options: object) -> None:
        tensors = [torch.from_numpy(inputs[key]) for key in "qkv"]
        mask = inputs.get("mask", inputs.get("bias"))
        out = scaled_dot_product_attention(
            *tensors, attn_mask=None if mask is None else torch.from_numpy(mask), **options)
        save(f"torch_{name}", **inputs, **options, out=out)

    case("plain", make_qkv(e=9))
    case("scale", make_qkv(), scale=0.3)
    case("causal", make_qkv(), is_causal=True)
    case("causal_tall", make_qkv(T=9), is_causal=True)
    case("grouped", make_qkv(H=6, G=2), enable_gqa=True, is_causal=True)
    case("multi_query", make_qkv(H=3, G=1, e=4), enable_gqa=True)
    mask = rng.random((2, 1, 5, 7)) < 0.4
    mask[0, 0, 2] = False
    case("mask", make_qkv() | {"mask": mask})
    bias = normal(4, 1, 7)
    bias[:, :, 3] = -np.inf
    case("bias", make_qkv() | {"bias": bias})


def onnx_attention() -> None:
    """The Attention operator: its attn_mask is our mask or bias, its past our first keys. Attributes are float32."""

    def case(name: str, inputs: dict[str, np.ndarray], past: int = 0, **attributes: float) -> None:
        key, value = (np.split(inputs[x], [past], axis=2) for x in "kv")
        feeds = {"Q": inputs["q"], "K": key[1], "V": value[1]}
        names = ["Q", "K", "V", "", "", "", ""]
        for slot, (onnx_name, array) in enumerate((
            ("attn_mask", inputs.get("mask", inputs.get("bias"))),
            ("past_key", key[0] if past else None),
            ("past_value", value[0] if past else None),
            ("nonpad_kv_seqlen", inputs.get("kv_lengths")),
        ), 3):  # fmt: skip
            if array is not None:
                feeds[onnx_name], names[slot] = array, onnx_name
        while not names[-1]:
            names.pop()
        node = onnx.helper.make_node("Attention", names, ["Y"], **attributes)
        graph = onnx.helper.make_graph(
            [node], "g",
            [onnx.helper.make_tensor_value_info(n, onnx.helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
             for n, a in feeds.items()],
            [onnx.helper.make_tensor_value_info("Y", onnx.TensorProto.DOUBLE, None)])  # fmt: skip
        version = 24 if "kv_lengths" in inputs else 23
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", version)])
        (out,) = ReferenceEvaluator(model).run(None, feeds)
        save(f"onnx_{name}", **inputs, **attributes, past=past, out=out)

    case("softcap", make_qkv(), softcap=0.75)
    case("softcap_bias", make_qkv() | {"bias": normal(2, 4, 5, 7)}, softcap=0.75, scale=1.5625)
    case("softcap_mask_causal", make_qkv(H=6, G=3) | {"mask": rng.random((5, 7)) < 0.7}, softcap=2.0, is_causal=1)
    case("cache", make_qkv(S=11, e=3), past=6, is_causal=1)
    case("lengths", make_qkv() | {"kv_lengths": np.array([3, 7])})
    # With lengths the last query stands at the last key: q_offset is lengths - T, here negative for one sequence.
    case("lengths_causal", make_qkv() | {"kv_lengths": np.array([4, 7])}, is_causal=1)


def rotary() -> None:
    x, positions = normal(2, 3, 5, 8), np.array([[0, 1, 2, 3, 4], [7, 3, 100, 2047, 5]])
    config = LlamaConfig(hidden_size=24, num_attention_heads=3, head_dim=8, rope_parameters={
        "rope_type": "default", "rope_theta": 500.0})  # fmt: skip
    cos, sin = llama.LlamaRotaryEmbedding(config)(torch.from_numpy(x), torch.from_numpy(positions))
    out, _ = llama.apply_rotary_pos_emb(torch.from_numpy(x), torch.from_numpy(x), cos, sin)
    save("rotary_halves", x=x, positions=positions, base=500.0, out=out)
    # GPT-J turns the first columns only, and holds [B,T,H,d].
    sincos = gptj.create_sinusoidal_positions(2048, 6)[torch.from_numpy(positions)]
    sin, cos = sincos.split(3, dim=-1)
    across = torch.from_numpy(x).transpose(1, 2)
    turned = gptj.apply_rotary_pos_emb(across[..., :6], sin, cos)
    save("rotary_interleaved", x=x, positions=positions, width=6, cos=cos, sin=sin,
         out=torch.cat([turned, across[..., 6:]], -1).transpose(1, 2))  # fmt: skip


def relative_positions() -> None:
    distances = torch.arange(-300, 301)
    for i, (bidirectional, buckets, farthest) in enumerate(
        (*((both, 32, 128) for both in (True, False)), (True, 6, 9), (False, 20, 256), (True, 64, 256), (False, 5, 50))
    ):
        bucket = T5Attention._relative_position_bucket(distances, bidirectional, buckets, farthest)
        save(f"t5_buckets_{i}", bidirectional=bidirectional, buckets=buckets, max_distance=farthest,
             out=bucket.numpy().astype(np.uint8))  # fmt: skip
    attention = T5Attention(T5Config(d_model=8, num_heads=2, d_kv=4), has_relative_attention_bias=True)
    randomise(attention)
    save("t5_bias", table=attention.relative_attention_bias.weight, out=attention.compute_bias(5, 7))


def llama_parts() -> None:
    config = LlamaConfig(hidden_size=10, intermediate_size=14, num_attention_heads=1, rms_norm_eps=1e-3)
    # transformers takes the mean of squares in float32 whatever the input is.
    norm = llama.LlamaRMSNorm(10, eps=1e-3).float()
    randomise(norm)
    x = normal(3, 10)
    save("rms_norm", x=x, weight=norm.weight, eps=1e-3, out=norm(torch.from_numpy(x).float()))
    mlp = llama.LlamaMLP(config)
    randomise(mlp)
    save("gated_mlp", x=x, up=mlp.up_proj.weight, gate=mlp.gate_proj.weight, down=mlp.down_proj.weight,
         out=mlp(torch.from_numpy(x)))  # fmt: skip


def layers() -> None:
    x, memory = normal(2, 5, 12), normal(2, 7, 10)
    cross = torch.nn.MultiheadAttention(12, 3, kdim=10, vdim=10, batch_first=True)
    randomise(cross)
    out, _ = cross(*map(torch.from_numpy, (x, memory, memory)), need_weights=False)
    biases = dict(zip(("query.bias", "key.bias", "value.bias"), cross.in_proj_bias.chunk(3), strict=True))
    save("cross", x=x, memory=memory, out=out, **{
        "query.weight": cross.q_proj_weight, "key.weight": cross.k_proj_weight, "value.weight": cross.v_proj_weight,
        "output.weight": cross.out_proj.weight, "output.bias": cross.out_proj.bias, **biases})  # fmt: skip
    for pre_norm in (False, True):
        layer = torch.nn.TransformerEncoderLayer(12, 3, 20, 0.0, "gelu", batch_first=True, norm_first=pre_norm)
        randomise(layer)
        named = {f"{ours}.{kind}": getattr(module, kind) for kind in ("weight", "bias") for ours, module in {
            "attention.output": layer.self_attn.out_proj, "attention.norm": layer.norm1, "ffn.norm": layer.norm2,
            "ffn.up": layer.linear1, "ffn.down": layer.linear2}.items()}  # fmt: skip
        for name, weight, bias in zip(("query", "key", "value"), layer.self_attn.in_proj_weight.chunk(3),
                                      layer.self_attn.in_proj_bias.chunk(3), strict=True):  # fmt: skip
            named |= {f"attention.{name}.weight": weight, f"attention.{name}.bias": bias}
        padding = torch.arange(5) >= torch.tensor([[5], [3]])
        save("pre_norm" if pre_norm else "post_norm", x=x, kv_lengths=np.array([5, 3]), **named,
             out=layer.train()(torch.from_numpy(x), src_key_padding_mask=padding))  # fmt: skip


if __name__ == "__main__":
    main()
