"""Mistakes that an implementation of a family could make change the vectors of its golden models.

The mistakes lie in the model or its config, so that one backend shows them.
"""

from dataclasses import replace

import numpy as np
import pytest

from ..tools.encoders import load_encoder
from ..tools.golden_models import GOLDEN, Golden, assert_wrong, load

ALBERT = ("albert_shared", "albert_groups", "albert_relu")
GEMMA = ("gemma_new", "gemma_old", "gemma_biased")
SCALED = ("gemma_linear", "qwen3_yarn", "jina_v3_yarn", "eurobert_llama3", "nomic_linear", "gte_yarn",
          "modernbert_scaled", "modernbert_linear")
ELECTRA = ("electra_small", "electra_base", "electra_generator")
LEARNT = ("bert_limit", "distilbert_limit", "distilbert_relu", "xlm_roberta", "camembert")


def changed(name, weights=None, **options):
    """Return a golden model with other options, and with some weights in place of its own."""
    model = load_encoder(GOLDEN / name)
    return replace(model, config=replace(model.config, **options), weights=dict(model.weights) | (weights or {}))


@pytest.mark.parametrize("name", ALBERT + ELECTRA)
def test_the_map_of_the_embeddings_shows(name, one_backend):
    model = load_encoder(GOLDEN / name)
    E, D = model.config.embedding_width, model.config.hidden_size
    assert (E == 0) == (name == "electra_base")
    if E:
        assert model.weights["embeddings.projection.weight"].shape == (D, E)
        for part in ("weight", "bias"):
            without = np.zeros_like(model.weights[f"embeddings.projection.{part}"])
            wrong = changed(name, {f"embeddings.projection.{part}": without})
            assert_wrong(load(wrong, one_backend), Golden(name))


@pytest.mark.parametrize("name", LEARNT)
def test_the_first_row_of_the_positions_shows(name, one_backend):
    model = load_encoder(GOLDEN / name)
    table, offset = model.weights["embeddings.position"], model.config.position_offset
    assert offset == {"xlm_roberta": 2, "camembert": 4}.get(name, 0)
    moved = changed(name, {"embeddings.position": np.roll(table, 1, axis=0)})
    assert_wrong(load(moved, one_backend), Golden(name))


@pytest.mark.parametrize("name", ALBERT + ELECTRA + LEARNT)
def test_another_activation_or_epsilon_shows(name, one_backend):
    config = load_encoder(GOLDEN / name).config
    other = "relu" if config.activation != "relu" else "gelu"
    assert_wrong(load(changed(name, activation=other), one_backend), Golden(name), 0.03)
    assert_wrong(load(changed(name, norm_eps=0.1), one_backend), Golden(name), 0.03)


def test_exact_gelu_is_not_the_tanh_form(one_backend):
    for name, other in (("albert_shared", "gelu"), ("albert_groups", "gelu_tanh"), ("electra_small", "gelu_tanh"),
                        ("electra_generator", "gelu")):
        assert_wrong(load(changed(name, activation=other), one_backend), Golden(name), 1e-4)


def test_the_groups_of_layers_show(one_backend):
    config = load_encoder(GOLDEN / "albert_groups").config
    assert config.weight_sets == (0, 0, 0, 1, 1)
    for sets in ((0, 0, 1, 1, 1), (0, 1, 0, 1, 0), (1, 1, 0, 0, 0)):
        assert_wrong(load(changed("albert_groups", weight_sets=sets), one_backend), Golden("albert_groups"))


@pytest.mark.parametrize("name", GEMMA)
def test_scales_and_norms_of_gemma_show(name, one_backend):
    model, golden = load_encoder(GOLDEN / name), Golden(name)
    assert_wrong(load(changed(name, embedding_scale=1.0), one_backend), golden)
    assert_wrong(load(changed(name, attention_scale=None), one_backend), golden)
    for part in ("attention.norm", "attention.post_norm", "ffn.norm", "ffn.post_norm", "attention.query_norm",
                 "attention.key_norm", "final_norm"):
        less_one = {key: array - 1 for key, array in model.weights.items() if key.endswith(f"{part}.weight")}
        assert len(less_one) == (1 if part == "final_norm" else model.config.num_layers)
        assert_wrong(load(changed(name, less_one), one_backend), golden)


@pytest.mark.parametrize("name", GEMMA)
def test_kinds_of_layers_of_gemma_show(name, one_backend):
    kinds, golden = load_encoder(GOLDEN / name).config.attention_kinds, Golden(name)
    others = [kinds[::-1], [replace(kind, rotary_theta=kinds[0].rotary_theta) for kind in kinds],
              [replace(kind, causal=True) for kind in kinds]]
    others += [[kinds[0], replace(kinds[1], window=kinds[1].window + more)] for more in (-1, 1)]
    for wrong in others:
        engine = load(changed(name, attention_kinds=tuple(wrong)), one_backend)
        rows, expected = golden.expected(7)
        assert np.abs(golden.forward(engine)[7][rows] - expected).max() > 0.03, wrong


def test_the_four_norms_of_a_layer_are_not_two(one_backend):
    model = load_encoder(GOLDEN / "gemma_new")
    weights = {key: array for key, array in model.weights.items() if "post_norm" not in key}
    without = replace(model, config=replace(model.config, norm_place="pre"), weights=weights)
    assert_wrong(load(without, one_backend), Golden("gemma_new"))


@pytest.mark.parametrize("name", SCALED)
def test_the_scaling_of_positions_shows(name, one_backend):
    (kind, *others), golden = load_encoder(GOLDEN / name).config.attention_kinds, Golden(name)
    plain = replace(kind, rotary_scale=1.0, rotary_frequencies=(), rotary_factor=1.0)
    wrong = [plain, replace(plain, rotary_scale=3.0)]
    if kind.rotary_frequencies:
        wrong += [replace(kind, rotary_frequencies=kind.rotary_frequencies[::-1])]
        wrong += [replace(kind, rotary_factor=1.0)] if name != "eurobert_llama3" else []
    for mistake in wrong:
        engine = load(changed(name, attention_kinds=(mistake, *others)), one_backend)
        rows, expected = golden.expected(7)
        assert np.abs(golden.forward(engine)[7][rows] - expected).max() > 0.03, mistake
