"""ViT, DINOv2, Whisper's encoder and wav2vec 2.0 against transformers: the same weights, vectors in float64."""

import json
from dataclasses import replace

import numpy as np
import pytest

from engine import Engine, Transformer, WeightsError
from engine.cli.main import main
from engine.families import FAMILIES
from engine.files.folder import ModelFolder
from engine.model.positions import resize_matrix
from engine.weights.input_layers import Patches, make_stem, stem_arrays, stem_document

from ..tools.encoders import convert_encoder, engine_of, load_encoder
from ..tools.golden_models import GOLDEN, cosine, load
from ..tools.running import COMPILED

IMAGES = ("vit_own", "vit_new", "vit_unbiased", "deit_own", "dinov2_own", "dinov2_giant", "dinov2_registers",
          "clip_vision", "siglip_vision")
FRAMES = ("whisper_own", "whisper_model", "whisper_relu")
WAVES = ("wav2vec2_base", "wav2vec2_large", "hubert_ctc")
MODELS = IMAGES + FRAMES + WAVES


class Inputs:
    """The contents of an inputs.npz."""

    def __init__(self, name):
        with np.load(GOLDEN / name / "inputs.npz") as file:
            count = len(file.files) // 2
            self.given = [file[f"given_{i}"] for i in range(count)]
            self.hidden = [file[f"hidden_{i}"] for i in range(count)]
        self.argument = "input_features" if name in FRAMES else "input_values" if name in WAVES else "pixel_values"

    def forward(self, engine, given=None):
        return engine.forward(**{self.argument: self.given if given is None else given})


def farthest(found, hidden):
    return max(np.abs(a - b).max() for a, b in zip(found, hidden, strict=True))


@pytest.mark.parametrize("name", MODELS)
def test_vectors(name, backend):
    engine, inputs = load(GOLDEN / name, backend), Inputs(name)
    together = inputs.forward(engine)
    assert [row.shape for row in together] == [row.shape for row in inputs.hidden]
    assert all(row.dtype == np.float32 for row in together)
    assert farthest(together, inputs.hidden) <= 3e-5
    alone = [inputs.forward(engine, given[None]) for given in inputs.given]
    assert all(row.shape[0] == 1 for row in alone)
    if backend != "reference":
        assert all(np.array_equal(row[0], found) for row, found in zip(alone, together, strict=True))


@pytest.mark.parametrize("backend", COMPILED)
@pytest.mark.parametrize(("precision", "least"), [("bfloat16", 0.999), ("int8", 0.97)])
@pytest.mark.parametrize("name", MODELS)
def test_precisions(name, precision, least, backend):
    inputs = Inputs(name)
    found = inputs.forward(load(GOLDEN / name, backend, precision=precision))
    assert min(cosine(a, b).min() for a, b in zip(found, inputs.hidden, strict=True)) >= least
    # as the instructions of this CPU need it: within the bound of int8 or not
    converted = [convert_encoder(load_encoder(GOLDEN / name), precision, bounded)
                 for bounded in sorted({False, precision == "int8"})]
    assert min(farthest(inputs.forward(engine_of(encoder, backend=backend, precision=precision)), found)
               for encoder in converted) <= 1e-6


@pytest.mark.parametrize("antialias", [True, False])
def test_resized_positions_keep_what_is_constant_and_linear(antialias):
    for size, new in ((37, 16), (16, 37), (5, 5), (1, 4), (4, 1)):
        matrix = resize_matrix(size, new, antialias)
        assert matrix.shape == (new, size)
        assert np.abs(matrix.sum(axis=1) - 1).max() < 1e-12
    assert np.abs(resize_matrix(9, 9, antialias) - np.eye(9)).max() < 1e-12
    middle = (resize_matrix(40, 80, antialias) @ np.arange(40))[8:-8]
    # Only a = -0.5, the kernel with antialiasing, keeps straight lines.
    assert np.abs(middle - ((np.arange(80) + 0.5) / 2 - 0.5)[8:-8]).max() < (1e-9 if antialias else 0.05)


def test_inputs_that_do_not_fit(refusals):
    refusals(lambda name, given: Engine.load(GOLDEN / name, backend="reference").forward(**given), [
        ("vit_own", {"pixel_values": np.zeros((1, 3, 12, 16), np.float32)}),
        ("vit_own", {"pixel_values": np.zeros((1, 3, 13, 13), np.float32)}),
        ("vit_own", {"pixel_values": np.zeros((1, 1, 12, 12), np.float32)}),
        ("dinov2_own", {"pixel_values": np.zeros((1, 3, 3, 12), np.float32)}),
        ("vit_own", {"pixel_values": np.zeros((3, 12, 12), np.float32)}),
        ("vit_own", {"pixel_values": np.zeros((1, 3, 12, 12), np.uint8)}),
        ("vit_own", {"pixel_values": [np.zeros((3, 12, 12)), np.zeros((12, 12))]}),
        ("vit_own", {"pixel_values": np.full((1, 3, 12, 12), np.nan)}),
        ("vit_own", {"pixel_values": [[1.0], [1.0, 2.0]]}), ("vit_own", {"pixel_values": "cat.png"}),
        ("vit_own", {"pixel_values": np.zeros((1, 3, 12, 12)), "inputs_embeds": np.zeros((1, 2, 42))}),
        ("vit_own", {"input_features": np.zeros((1, 3, 12))}), ("vit_own", {"input_ids": [[1]]}),
        ("whisper_model", {"input_features": np.zeros((1, 11, 41))}),
        ("whisper_model", {"input_features": np.zeros((1, 11, 0))}),
        ("whisper_model", {"input_features": np.zeros((1, 10, 40))}),
        ("wav2vec2_base", {"input_values": np.zeros((1, 399), np.float32)}),
        ("wav2vec2_base", {"input_values": np.zeros(4000, np.float32)}),
        ("wav2vec2_base", {"input_values": [np.full(4000, np.inf, np.float32)]}),
        ("wav2vec2_base", {"input_values": np.zeros((1, 4000), np.int16)}),
        ("bert", {"pixel_values": np.zeros((1, 3, 12, 12))}),
    ])


def test_forms_of_inputs(backend):
    engine, inputs = load(GOLDEN / "whisper_model", backend), Inputs("whisper_model")
    assert engine.forward(input_features=np.zeros((0, 11, 40), np.float32)).shape[0] == 0
    assert engine.forward(input_features=[]) == []
    odd = engine.forward(input_features=[inputs.given[0][:, :1], inputs.given[0][:, :39]])
    assert [row.shape for row in odd] == [(1, 36), (20, 36)]
    double = engine.forward(input_features=inputs.given[0][None].astype(np.float64))
    assert np.array_equal(double, engine.forward(input_features=inputs.given[0][None]))
    given = engine.forward(input_features=inputs.given[0][None], output_hidden_states=[0, 3])
    assert np.array_equal(given.last_hidden_state, double)


def changed(name, **arrays):
    stem = load_encoder(GOLDEN / name).stem
    return stem_document(stem), {key: array for key, array in (stem_arrays(stem) | arrays).items() if array is not None}


def test_arrays_of_a_stem_that_do_not_fit(refusals):
    refusals(lambda name, arrays: make_stem(*changed(name, **arrays)), [
        ("vit_own", {"bias": None}), ("vit_own", {"more": np.zeros(3, np.float32)}),
        ("vit_own", {"bias": np.zeros(41, np.float32)}), ("vit_own", {"weight": np.zeros((42, 3, 4, 5), np.float32)}),
        ("vit_own", {"weight": np.zeros((42, 3, 4), np.float32)}),
        ("vit_own", {"weight": np.zeros((42, 0, 4, 4), np.float32)}),
        ("vit_own", {"positions": np.zeros((11, 42), np.float32)}),
        ("vit_own", {"positions": np.zeros((1, 42), np.float32)}),
        ("vit_own", {"first": np.zeros((2, 42), np.float32)}),
        ("vit_own", {"first": np.full((1, 42), np.inf, np.float32)}), ("vit_own", {"first": np.zeros((1, 42))}),
        ("whisper_own", {"weight2": np.zeros((42, 41, 3), np.float32)}),
        ("whisper_own", {"weight": np.zeros((42, 7, 5), np.float32)}),
        ("whisper_own", {"registers": np.zeros((1, 42), np.float32)}),
    ])


@pytest.mark.parametrize("document", [None, [], {}, {"kind": "waves"}, {"kind": ["patches"]},
                                      {"kind": "frames", "resize": "bicubic"}, {"kind": "patches", "resize": "linear"},
                                      {"kind": "patches", "extra": 1}])
def test_documents_of_a_stem_that_do_not_fit(document):
    with pytest.raises(WeightsError, match="a stem must be of the kind patches or frames"):
        make_stem(document, stem_arrays(load_encoder(GOLDEN / "vit_own").stem))


def test_a_stem_of_other_sizes_than_the_configs_is_refused(refusals):
    def call(name, key, value):
        stem = load_encoder(GOLDEN / name).stem
        values = {"model_type": "vit", "patch_size": 4, "image_size": 12, "num_mel_bins": 7, "max_source_positions": 65}
        read = FAMILIES["whisper" if name in FRAMES else "vit"].read_encoder
        read(values).stem(stem_arrays(stem))
        read(values | {key: value}).stem(stem_arrays(stem))

    refusals(call, [
        ("vit_own", "patch_size", 3), ("vit_own", "image_size", 16), ("vit_own", "num_channels", 1),
        ("vit_own", "patch_size", 0), ("vit_own", "image_size", [12, 12]), ("whisper_own", "num_mel_bins", 80),
        ("whisper_own", "max_source_positions", 64),
    ])


def test_configs_that_are_refused(refusals):
    refusals(lambda family, values: FAMILIES[family].read_encoder({"model_type": family} | values), [
        ("dinov2", {"apply_layernorm": False}), ("vit", {"hidden_act": "quick_gelu"}),
        ("whisper", {"use_weighted_layer_sum": True}), ("whisper", {"activation_function": "softplus"}),
        ("dinov2", {"mlp_ratio": float("nan")}), ("dinov2", {"mlp_ratio": -1}), ("dinov2", {"mlp_ratio": 1e300}),
        ("siglip_vision_model", {"vision_use_head": False}), ("siglip_vision_model", {"hidden_act": "quick_gelu"}),
        ("clip_vision_model", {"is_decoder": True}), ("vit", {"num_attention_heads": 5}),
        ("dinov2", {"hidden_size": 10**400}),
        ("hubert", {"conv_pos_batch_norm": True}), ("wav2vec2", {"add_adapter": True}),
        ("wav2vec2", {"adapter_attn_dim": 16}), ("wav2vec2", {"conv_dim": [512, 0]}), ("wav2vec2", {"conv_dim": 7}),
    ])


def test_convolutions_of_other_sizes_than_the_configs_are_refused(refusals):
    def call(name, key, value):
        values = json.loads((GOLDEN / name / "config.json").read_text(encoding="utf-8"))
        part = FAMILIES[values["model_type"]].read_encoder(values)
        tensors = ModelFolder(GOLDEN / name).tensors(part.names.rename)
        arrays = {tensor.removeprefix("stem."): array.astype(np.float32) for tensor, array in tensors.items()
                  if tensor.startswith("stem.")}
        part.stem(dict(arrays))
        changed = {tensor: value if tensor == key else array for tensor, array in arrays.items()
                   if tensor != key or value is not None}
        with np.errstate(all="ignore"):     # as `load_model` reads it
            FAMILIES[values["model_type"]].read_encoder(values | ({} if key in arrays else {key: value})).stem(changed)

    refusals(call, [
        ("wav2vec2_base", "conv_kernel", [10, 3, 3, 3, 3, 2, 3]), ("wav2vec2_base", "conv_stride", [5, 2]),
        ("wav2vec2_base", "feat_extract_norm", "batch"), ("wav2vec2_base", "feat_extract_norm", "layer"),
        ("wav2vec2_base", "num_conv_pos_embeddings", 15), ("wav2vec2_base", "num_conv_pos_embedding_groups", 3),
        ("hubert_ctc", "feat_proj_layer_norm", True), ("wav2vec2_base", "feat_extract_activation", "swish2"),
        ("wav2vec2_base", "positions.scale", None), ("wav2vec2_base", "positions.bias", None),
        ("wav2vec2_base", "positions.direction", np.zeros((24, 6, 16), np.float32)),
        ("wav2vec2_base", "projection.weight", np.zeros((24, 13), np.float32)),
        ("wav2vec2_large", "conv_norm_3.bias", None),
        ("wav2vec2_large", "conv_2.weight", np.zeros((12, 10), np.float32)),
    ])


def test_a_scale_is_moved_into_the_map_before_it():
    vit = FAMILIES["dinov2"].read_encoder({"model_type": "dinov2"})
    weights = {"layers.0.ffn.down.weight": np.ones((2, 3), np.float32),
               "layers.0.ffn.down.bias": np.ones(2, np.float32),
               "layers.0.ffn.down.scale.lambda1": np.array([2, -3], np.float16)}
    _, folded = vit.finish(vit.config, weights)
    assert sorted(folded) == ["layers.0.ffn.down.bias", "layers.0.ffn.down.weight"]
    assert folded["layers.0.ffn.down.weight"].tolist() == [[2, 2, 2], [-3, -3, -3]]
    assert folded["layers.0.ffn.down.bias"].tolist() == [2, -3]
    del weights["layers.0.ffn.down.bias"]
    with pytest.raises(WeightsError, match=r"scale.lambda1 \[2\] has no layers.0.ffn.down.bias with as many rows"):
        vit.finish(vit.config, weights)


def test_a_stem_of_another_width_is_refused():
    model, other = load_encoder(GOLDEN / "vit_own"), load_encoder(GOLDEN / "vit_new")
    with pytest.raises(WeightsError, match="stem must be None, or make token vectors of width 42"):
        engine_of(replace(model, stem=other.stem))
    with pytest.raises(WeightsError, match="stem must be None"):
        engine_of(Transformer(model.config, model.weights, stem="patches"))
    assert isinstance(model.stem, Patches)


def test_info_names_the_input(capsys):
    rows = {"vit_own": "pixel_values: floats [C,H,W] for each", "whisper_own": "input_features: floats [C,T] for each",
            "wav2vec2_large": "input_values: floats [n] for each"}
    for name, row in rows.items():
        assert main(["info", str(GOLDEN / name)]) == 0
        assert row in capsys.readouterr().out
