"""DeBERTa v2 and v3: the rows of distances, and options that are refused."""

import json
from dataclasses import replace

import numpy as np
import pytest

from engine import WeightsError
from engine.cli.describe import outline
from engine.families import FAMILIES
from engine.model.attention import RelativePositions
from engine.model.config import ModelConfig
from engine.model.positions import relative_rows
from engine.programs import program_of

from ..tools.encoders import engine_of, load_encoder
from ..tools.golden_models import GOLDEN, Golden, assert_same_bits, load

MODELS = ["deberta_v3", "deberta_p2c", "deberta_c2p", "deberta_own"]


def test_rows_of_the_published_models():
    distances = np.array([-2000, -512, -511, -400, -129, -128, -1, 0, 1, 127, 128, 129, 130, 131, 200, 400, 510, 511,
                          512])
    rows = relative_rows(distances, 512, 256)
    # The far ones by the published formula: ceil(ln(x / 128) / ln(511 / 128) * 127) + 128, with the sign of x, and 256.
    assert rows.tolist() == [0, 0, 1, 23, 127, 128, 255, 256, 257, 383, 384, 385, 386, 387, 425, 489, 511, 511, 511]


def test_rows_without_buckets():
    assert relative_rows(np.array([-9, -4, -3, 0, 3, 4, 9]), 4, 0).tolist() == [0, 0, 1, 4, 7, 7, 7]


@pytest.mark.parametrize(("limit", "buckets"), [(512, 256), (20, 8), (10, 12), (320, 32), (9, 0)])
def test_rows_never_fall_and_stay_in_the_table(limit, buckets):
    rows = relative_rows(np.arange(-3 * limit, 3 * limit + 1), limit, buckets)
    assert (np.diff(rows) >= 0).all()
    assert rows[0] == 0
    assert rows[-1] == 2 * (buckets or limit) - 1
    assert rows[3 * limit] == (buckets or limit)


V3 = {"hidden_size": 768, "num_attention_heads": 12, "num_hidden_layers": 12, "intermediate_size": 3072,
      "relative_attention": True, "position_buckets": 256, "norm_rel_ebd": "layer_norm", "share_att_key": True,
      "pos_att_type": "p2c|c2p", "layer_norm_eps": 1e-7, "max_relative_positions": -1, "position_biased_input": False,
      "type_vocab_size": 0, "vocab_size": 128100, "max_position_embeddings": 512, "hidden_act": "gelu"}


def test_config_of_the_published_base_model():
    config = FAMILIES["deberta-v2"].read_encoder(V3).config
    assert config.relative == RelativePositions(512, 256)
    assert config.relative.rows == 512
    assert (config.position_table, config.longest_sequence, config.norm_eps) == (False, 512, 1e-7)
    attend = next(operation for operation in program_of(config).operations if hasattr(operation, "relative"))
    assert attend.scale == pytest.approx(1 / np.sqrt(3 * 64))
    assert "c = attend(q, k, v, c2p and p2c of distances)" in outline(program_of(config))[1][1]


def test_a_position_table_that_the_model_does_not_read_is_left_out(run_changed, unchanged):
    extra = {"deberta.embeddings.position_embeddings.weight": np.ones((320, 33), np.float32)}
    assert_same_bits(run_changed("deberta_v3", extra=extra), unchanged("deberta_v3"))


def config(**relative):
    return ModelConfig("test", 12, 1, 3, 4, 20, relative=RelativePositions(**relative))


@pytest.mark.parametrize("relative", [{"limit": 8}, {"limit": 90, "buckets": 8, "terms": ("p2c",), "norm": False,
                                                     "own_maps": True}])
def test_options_survive_json(relative):
    made = config(**relative)
    assert ModelConfig.from_json(json.loads(json.dumps(made.to_json()))) == made
    assert "relative" not in ModelConfig("test", 12, 1, 3, 4, 20).to_json()


def test_impossible_options_are_refused(refusals):
    refusals(lambda relative: config(**relative), [
        {"limit": 0}, {"limit": 2.0}, {"limit": 10**9}, {"limit": 9, "buckets": -1}, {"limit": 9, "buckets": 16},
        {"limit": 9, "buckets": 7}, {"limit": 9, "terms": ()}, {"limit": 9, "terms": ("p2p",)},
        {"limit": 9, "terms": "c2p"}, {"limit": 9, "norm": 1}, {"limit": 9, "own_maps": None},
    ])


@pytest.mark.parametrize("value", [3, [], {"buckets": 4}, {"limit": 4, "colour": 1}])
def test_json_of_another_form_is_refused(value):
    values = ModelConfig("test", 12, 1, 3, 4, 20).to_json() | {"relative": value}
    with pytest.raises(WeightsError, match="relative must be"):
        ModelConfig.from_json(values)


@pytest.mark.parametrize("name", MODELS)
def test_attention_weights_are_those_of_the_definition(name, backend):
    golden = Golden(name)
    asked = {"output_attentions": True, "output_entropies": True}
    types = None if golden.types is None else golden.types[-1][None]
    exact, out = (load(GOLDEN / name, b).forward(golden.ids[-1][None], None, types, **asked)
                  for b in ("reference", backend))
    for head, weights in exact.attentions.items():
        assert np.abs(out.attentions[head][0] - weights[0]).max() <= 1e-5
        assert np.abs(out.entropies[head][0] - exact.entropies[head][0]).max() <= 1e-4


def test_positions_that_overflow_are_refused(backend):
    model, name = load_encoder(GOLDEN / "deberta_v3"), "layers.0.attention.key.weight"
    large = {name: model.weights[name].astype(np.float32) * np.float32(1e38)}
    with pytest.raises(WeightsError, match="too large"):
        engine_of(replace(model, weights=dict(model.weights) | large), backend=backend).forward([[4, 5]])
