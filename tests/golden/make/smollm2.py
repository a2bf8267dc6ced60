"""Make the golden tokens and logits of SmolLM2-135M-Instruct: the weights by gguf, the model by transformers.

    python -m tests.golden.make.smollm2 SmolLM2-135M-Instruct.Q4_1.gguf

The package gguf converts the blocks to float32, and transformers' LlamaForCausalLM computes in float32. smollm2.npz
holds for each prompt i of `PROMPTS` ids_{i} [T], greedy_{i} [`NEW_TOKENS`], and of the logits after each token of the
prompt the 8 largest, values_{i} [T,8] and best_{i} [T,8]. Where the largest logit leads by less than 1e-3, a greedy
text ends early.
"""

import re
import sys

import gguf
import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from tests.tools.paths import DECODERS

PROMPTS = (
    [1, 4093, 198, 31530, 549, 253, 986, 1977, 563, 253, 16438, 284, 253, 4626, 30, 2, 198, 1, 520, 9531, 198],
    [504, 808, 2583, 436],
)
"""The ids of a request for a story in the model's chat format, and of "The first computer was"."""
NEW_TOKENS, MARGIN = (200, 40), 1e-3
NAMES = {"attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
         "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "ffn_norm": "post_attention_layernorm",
         "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
TABLES = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}


def main(path: str) -> None:
    """Write the file."""
    config = LlamaConfig(
        vocab_size=49152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30, num_attention_heads=9,
        num_key_value_heads=3, max_position_embeddings=8192, rms_norm_eps=float(np.float32(1e-5)),
        tie_word_embeddings=True, rope_parameters={"rope_type": "default", "rope_theta": 100000.0})
    state = {}
    for tensor in gguf.GGUFReader(path).tensors:
        array = np.array(gguf.quants.dequantize(tensor.data, tensor.tensor_type))
        if match := re.fullmatch(r"blk\.(\d+)\.(\w+)\.weight", tensor.name):
            heads = {"attn_q": 9, "attn_k": 3}.get(match[2])
            if heads:  # llama.cpp keeps the two halves of a head interleaved
                array = array.reshape(heads, 32, 2, 576).swapaxes(1, 2).reshape(array.shape)
            state[f"model.layers.{match[1]}.{NAMES[match[2]]}.weight"] = torch.from_numpy(array)
        else:
            state[TABLES[tensor.name]] = torch.from_numpy(array)
    model = LlamaForCausalLM(config).eval()
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert missing in ([], ["lm_head.weight"]), missing
    assert not unexpected, unexpected
    model.tie_weights()
    arrays = {}
    with torch.inference_mode():
        for i, prompt in enumerate(PROMPTS):
            result = model(torch.tensor([prompt]), use_cache=True)
            values, best = result.logits[0].topk(8)
            tokens: list[int] = []
            while len(tokens) < NEW_TOKENS[i]:
                top = result.logits[0, -1].topk(2)
                if float(top.values[0] - top.values[1]) < MARGIN or int(top.indices[0]) == 2:
                    break
                tokens.append(int(top.indices[0]))
                result = model(torch.tensor([tokens[-1:]]), past_key_values=result.past_key_values, use_cache=True)
            print(len(tokens), tokens[:12])
            arrays |= {f"ids_{i}": np.array(prompt, np.int32), f"values_{i}": values.numpy(),
                       f"best_{i}": best.numpy().astype(np.int32), f"greedy_{i}": np.array(tokens, np.int32)}
    np.savez_compressed(DECODERS / "smollm2.npz", **arrays)


if __name__ == "__main__":
    main(sys.argv[1])
