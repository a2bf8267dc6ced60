"""Options of layers that share weights, of narrow and scaled embeddings, of norms and of rotary angles."""

from dataclasses import replace

import pytest

from engine.base.errors import WeightsError
from engine.cli.describe import outline
from engine.model.attention import AttentionKind
from engine.model.config import ModelConfig
from engine.programs import program_of
from engine.weights.parameters import expected_shapes

PLAIN = ModelConfig("test", hidden_size=12, num_layers=4, num_heads=3, head_width=4, ffn_size=20, vocab_size=30,
                    max_positions=16)


def test_layers_that_share_weights_have_one_set_of_names():
    shared = replace(PLAIN, weight_sets=(0, 0, 1, 1), embedding_width=5)
    shapes = expected_shapes(shared)
    two = expected_shapes(replace(PLAIN, num_layers=2, embedding_width=5))
    assert shapes == two
    assert shapes["embeddings.word"] == (30, 5)
    assert shapes["embeddings.projection.weight"] == (12, 5)
    assert shapes["embeddings.projection.bias"] == (12,)
    (_, before), (label, layers), _ = outline(program_of(shared))
    assert before == "e = word + position; e = layer_norm(e); x = projection e"
    assert label == "layers 0-3"
    assert layers.endswith("; 4 layers share 2 sets of weights")


def test_sandwich_norms_and_scaled_embeddings_in_formulas():
    gemma = replace(PLAIN, norm="rms", norm_place="sandwich", embedding_scale=2.5, biases=(), embedding_norm=False)
    lines = [text for _, text in outline(program_of(gemma))]
    assert lines[0] == "x = 2.5 word + position"
    assert "y = output c; y = x + rms_norm(y)" in lines[1]
    assert lines[1].endswith("x = y + rms_norm(x)")
    assert lines[2] == "x = rms_norm(x); store x"


def test_reordered_and_parallel_norms_in_formulas():
    one, _ = (text for _, text in outline(program_of(replace(PLAIN, norm_place="reordered")))[1:])
    assert "y = output c; y = x + layer_norm(y)" in one
    assert one.endswith("x = y + layer_norm(x)")
    assert "h = layer_norm(" not in one
    one, _ = (text for _, text in outline(program_of(replace(PLAIN, norm_place="parallel")))[1:])
    assert one.count("h = layer_norm(x)") == 2
    assert one.endswith("x = y + down u")


@pytest.mark.parametrize(("place", "asked", "found"), [
    ("post", None, False), ("pre", None, True), ("sandwich", None, True), ("post", True, True), ("pre", False, False),
    ("reordered", None, True), ("parallel", None, True)])
def test_the_last_norm(place, asked, found):
    assert ("final_norm.weight" in expected_shapes(replace(PLAIN, norm_place=place, final_norm=asked))) == found


@pytest.mark.parametrize("changes", [
    {"weight_sets": (0, 0, 0)}, {"weight_sets": (0, 2, 0, 0)}, {"weight_sets": (1, 1, 1, 1)},
    {"weight_sets": (0, -1, 0, 0)}, {"weight_sets": (0, 10**30, 0, 0)}, {"weight_sets": (0, 0.0, 0, 0)},
    {"weight_sets": [0, 0, 0, 0]}, {"embedding_width": -1}, {"embedding_width": 2.0}, {"embedding_scale": 0.0},
    {"embedding_scale": 1}, {"embedding_scale": float("nan")}, {"final_norm": 1}, {"final_norm": "yes"},
    {"attention_scale": 0.0}, {"norm_place": "sandwiched"}, {"attention_softcap": -1.0}, {"attention_softcap": 1},
    {"attention_softcap": float("nan")}, {"logits_softcap": 2.0}, {"joint_norm": 1},
    {"joint_norm": True, "head_norm": True}, {"logits_size": 3, "logits": "own"},
], ids=str)
def test_impossible_options_are_refused_by_name(changes):
    with pytest.raises(WeightsError, match=f"impossible model configuration: .*{next(iter(changes))}"):
        replace(PLAIN, **changes)


@pytest.mark.parametrize("changes", [
    {"rotary_frequencies": (1.0,)}, {"rotary_frequencies": (1.0, -1.0)}, {"rotary_frequencies": (1.0, float("nan"))},
    {"rotary_frequencies": (1, 1)}, {"rotary_frequencies": [1.0, 0.1]}, {"rotary_factor": 0.0}, {"rotary_factor": 1},
    {"rotary_frequencies": (1.0, 0.1), "rotary_theta": None}, {"rotary_frequencies": (1.0, 0.1), "rotary_width": 2},
    {"rotary_width": 3}, {"rotary_width": 6}, {"rotary_width": 0}, {"rotary_width": 2.0}, {"rotary_width": True},
    {"rotary_width": 2, "rotary_theta": None},
], ids=str)
def test_impossible_rotary_options_are_refused_by_name(changes):
    replace(PLAIN, attention_kinds=(AttentionKind(rotary_theta=1e4, rotary_frequencies=(1.0, 0.1), rotary_factor=2.0),))
    with pytest.raises(WeightsError, match=f"impossible model configuration: .*{next(iter(changes))}"):
        replace(PLAIN, attention_kinds=(AttentionKind(**{"rotary_theta": 1e4} | changes),))


def test_a_config_survives_json():
    config = replace(PLAIN, weight_sets=(0, 0, 1, 1), embedding_width=5, embedding_scale=2.5, final_norm=True,
                     attention_kinds=(AttentionKind(rotary_theta=1e4, rotary_frequencies=(1.0, 0.1)),))
    assert ModelConfig.from_json(config.to_json()) == config
    assert PLAIN.to_json().keys().isdisjoint({"weight_sets", "embedding_width", "embedding_scale", "final_norm"})
