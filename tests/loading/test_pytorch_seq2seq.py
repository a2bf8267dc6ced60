"""State dicts of pytorch-seq2seq: the names of all tensors, and what is refused. test_annalog.py runs a real one."""

import numpy as np
import pytest

from engine import Generator, WeightsError
from engine.loading.torch_modules import read_pytorch_seq2seq

D, F, V, P = 12, 20, 30, 16


def state_dict(rng):
    """Return random arrays under the names of the class Seq2Seq with one encoder layer and two decoder layers."""
    state = {}

    def linear(name, out, width):
        state[f"{name}.weight"] = rng.standard_normal((out, width), np.float32)
        state[f"{name}.bias"] = rng.standard_normal(out, np.float32)

    for half, layers, attentions in (("encoder", 1, ("self_attention",)),
                                     ("decoder", 2, ("self_attention", "encoder_attention"))):
        state[f"{half}.tok_embedding.weight"] = rng.standard_normal((V, D), np.float32)
        state[f"{half}.pos_embedding.weight"] = rng.standard_normal((P, D), np.float32)
        for i in range(layers):
            layer = f"{half}.layers.{i}"
            for attention in attentions:
                for name in "qkvo":
                    linear(f"{layer}.{attention}.fc_{name}", D, D)
            linear(f"{layer}.positionwise_feedforward.fc_1", F, D)
            linear(f"{layer}.positionwise_feedforward.fc_2", D, F)
            for norm in ("self_attn", "ff") if half == "encoder" else ("self_attn", "enc_attn", "ff"):
                state[f"{layer}.{norm}_layer_norm.weight"] = np.ones(D, np.float32)
                state[f"{layer}.{norm}_layer_norm.bias"] = np.zeros(D, np.float32)
    linear("decoder.fc_out", V, D)
    return state


def test_every_tensor_has_its_place():
    state = state_dict(np.random.default_rng(0))
    model = read_pytorch_seq2seq(state, num_heads=3)
    weights = model.decoder.weights
    assert len(model.encoder.weights) + len(weights) == len(state)
    assert np.array_equal(weights["layers.1.cross.key.weight"],
                          state["decoder.layers.1.encoder_attention.fc_k.weight"])
    assert np.array_equal(weights["logits.bias"], state["decoder.fc_out.bias"])
    generator = Generator(model, backend="reference")
    result, = generator.generate([[1, 2, 3]], decoder_start_token_id=1, max_new_tokens=4)
    assert len(result.ids) == 4
    assert (generator.encoder_config.num_layers, generator.config.num_layers) == (1, 2)


def test_other_state_dicts_are_refused():
    state = state_dict(np.random.default_rng(0))
    with pytest.raises(WeightsError, match=r"tok_embedding.weight, .*; the names here are encoder\."):
        read_pytorch_seq2seq({name: array for name, array in state.items() if name.startswith("encoder.")}, num_heads=3)
    with pytest.raises(WeightsError, match="cannot be split into 5 attention heads"):
        read_pytorch_seq2seq(state, num_heads=5)
    model = read_pytorch_seq2seq(state | {"decoder.surprise": np.ones(2, np.float32)}, num_heads=3)
    with pytest.raises(WeightsError, match=r"unexpected decoder\.surprise"):
        Generator(model, backend="reference")
