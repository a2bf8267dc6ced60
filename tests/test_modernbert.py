"""ModernBERT against transformers: the same weights, the vectors that transformers computed in float64.

tests/golden/make_modernbert.py made the files. The tests of vectors run on each backend that this machine has, and on
the weights both as they lie in the folder and after a round trip through the engine's own .npz.
"""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from engine import Engine, UnsupportedError, WeightsError
from engine.errors import InputError
from engine.model import Model, load_model, save_model
from engine.weights.bfloat16 import from_bfloat16
from engine.weights.safetensors import read_safetensors

from .tiny_models import safetensors, write_json

GOLDEN = Path(__file__).parent / "golden"
MODELS = ("modernbert_new", "modernbert_old", "modernbert_biases")
SEQUENCES = 8
"""Number of sequences in a golden file, beside the one with holes in its mask."""

LIMITS = {"bfloat16": (0.999, 0.999), "int8": (0.99, 0.97)}
"""Least cosine to the golden vectors: mean of all tokens, and of each token.

make_modernbert.py's NumPy computation, with weights and inputs of linear maps rounded (int8: by output row and by
token), gave at worst 0.99996 and 0.99973 in bfloat16, and 0.99909 and 0.98012 in int8.
"""

YARN = {"rope_type": "yarn", "rope_theta": 160000.0, "factor": 4.0}
DEFAULT = {"rope_type": "default", "rope_theta": 10000.0}


@pytest.fixture(scope="module", params=["folder", "npz"])
def path_of(request, tmp_path_factory):
    """A function from a golden model's name to the path to load it from."""

    def find(name):
        if request.param == "folder":
            return GOLDEN / name
        npz = tmp_path_factory.mktemp("npz") / "model.npz"
        save_model(load_model(GOLDEN / name), npz)
        return npz

    return find


@pytest.fixture(scope="module", params=MODELS)
def engine_and_golden(request, backend, path_of):
    return load(path_of(request.param), backend), Golden(request.param)


class Golden:
    """The contents of an expected.npz."""

    def __init__(self, name):
        self.name = name
        self.arrays = np.load(GOLDEN / name / "expected.npz")
        self.ids = [self.arrays[f"ids_{i}"].astype(int) for i in range(SEQUENCES)]

    def expected(self, key):
        """(rows, vectors of these rows) of sequence `key`."""
        return self.arrays[f"rows_{key}"].astype(int), self.arrays[f"hidden_{key}"]

    def padded(self, pad_token_id, right=True):
        """(ids, mask) of all sequences in one array, padded on the right or on the left."""
        mask = np.zeros((SEQUENCES, max(map(len, self.ids))), int)
        for row, ids in zip(mask, self.ids, strict=True):
            row[slice(0, len(ids)) if right else slice(len(row) - len(ids), None)] = 1
        padded = np.full(mask.shape, pad_token_id)
        padded[mask == 1] = np.concatenate(self.ids)
        return padded, mask


def load(source, backend, **options):
    """An engine for a path or for a model in memory; skips where the GPU's backend refuses the model."""
    make = Engine if isinstance(source, Model) else Engine.load
    try:
        return make(source, backend=backend, **options)
    except UnsupportedError as error:
        if backend == "cuda":
            pytest.skip(str(error))
        raise


def assert_near(hidden, golden, key):
    """The stored rows of sequence `key` are those of the golden file within 3e-5."""
    rows, expected = golden.expected(key)
    assert hidden.dtype == np.float32
    assert np.abs(hidden[rows] - expected).max() <= 3e-5


def assert_same_bits(actual, expected):
    assert len(actual) == len(expected)
    for a, b in zip(actual, expected, strict=True):
        assert np.array_equal(a, b)


def cosine(a, b):
    a, b = a.astype(np.float64), b.astype(np.float64)
    return (a * b).sum(-1) / np.sqrt((a * a).sum(-1) * (b * b).sum(-1))


def test_ragged_batch(engine_and_golden):
    engine, golden = engine_and_golden
    for i, hidden in enumerate(engine.forward(golden.ids)):
        assert hidden.shape == (len(golden.ids[i]), engine.config.hidden_size)
        assert_near(hidden, golden, i)


def test_each_alone(engine_and_golden):
    engine, golden = engine_and_golden
    for i, ids in enumerate(golden.ids):
        assert_near(engine.forward(ids[None])[0], golden, i)


@pytest.mark.parametrize("right", [True, False], ids=["padded on the right", "padded on the left"])
def test_padded_batch(engine_and_golden, right):
    engine, golden = engine_and_golden
    ids, mask = golden.padded(engine.config.pad_token_id, right)
    hidden = engine.forward(ids, mask)
    assert not hidden[mask == 0].any()
    for i in range(SEQUENCES):
        assert_near(hidden[i][mask[i] == 1], golden, i)


def test_holes_in_the_mask(engine_and_golden):
    # The window counts columns, so that a hole takes room in it. To refuse such a mask would be right as well.
    engine, golden = engine_and_golden
    ids, mask = golden.arrays["ids_holes"].astype(int), golden.arrays["mask_holes"]
    try:
        hidden = engine.forward(ids[None], mask[None])[0]
    except (InputError, UnsupportedError):
        return
    assert_near(hidden, golden, "holes")


def test_embeddings_in_place_of_ids(engine_and_golden):
    engine, golden = engine_and_golden
    table = load_model(GOLDEN / golden.name).weights["embeddings.word"]
    table = from_bfloat16(table) if table.dtype == np.uint16 else table
    assert_near(engine.forward(inputs_embeds=table[golden.ids[3]][None])[0], golden, 3)


def test_bits_depend_on_the_sequence_alone(engine_and_golden, backend):
    if backend == "reference":
        pytest.skip("the reference backend does not promise it")
    engine, golden = engine_and_golden
    alone = [engine.forward(ids[None])[0] for ids in golden.ids]
    assert_same_bits(engine.forward(golden.ids), alone)
    assert_same_bits(engine.forward(golden.ids[::-1])[::-1], alone)
    ids, mask = golden.padded(engine.config.pad_token_id)
    padded = engine.forward(ids, mask)
    assert_same_bits([hidden[row == 1] for hidden, row in zip(padded, mask, strict=True)], alone)


@pytest.mark.parametrize("precision", LIMITS)
@pytest.mark.parametrize("name", MODELS)
def test_precisions(name, precision, backend, path_of):
    if backend == "reference":
        pytest.skip("the reference backend has float32 only")
    engine, golden = load(path_of(name), backend, precision=precision), Golden(name)
    batch = engine.forward(golden.ids)
    assert_same_bits(batch, [engine.forward(ids[None])[0] for ids in golden.ids])
    cosines = []
    for i, hidden in enumerate(batch):
        rows, expected = golden.expected(i)
        cosines.append(cosine(hidden[rows], expected))
    cosines = np.concatenate(cosines)
    mean, lowest = LIMITS[precision]
    assert cosines.mean() >= mean
    assert cosines.min() >= lowest


@pytest.mark.parametrize("name", MODELS)
def test_a_swap_of_gate_and_up_shows(name, backend):
    model, golden = load_model(GOLDEN / name), Golden(name)
    weights = dict(model.weights)
    for i in range(model.config.num_layers):
        for kind in ("weight", "bias"):
            gate, up = f"layers.{i}.ffn.gate.{kind}", f"layers.{i}.ffn.up.{kind}"
            assert (gate in weights) == (up in weights)
            if gate in weights:
                weights[gate], weights[up] = weights[up], weights[gate]
    assert "layers.0.ffn.gate.weight" in weights
    engine = load(replace(model, weights=weights), backend)
    for i, hidden in enumerate(engine.forward(golden.ids)):
        rows, expected = golden.expected(i)
        assert np.abs(hidden[rows] - expected).max() > 0.1


# What follows is about config.json and the names of tensors, so the reference backend is enough.


@pytest.fixture
def run(tmp_path):
    """A function that runs a golden model, its config.json and tensors changed, on the reference backend."""

    def run_changed(name, without=(), rename=None, extra=None, **changes):
        folder = tmp_path / "changed"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(GOLDEN / name, folder)
        values = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        values = {key: value for key, value in values.items() if key not in without}
        write_json(folder / "config.json", values | changes)
        if rename or extra:
            tensors = read_safetensors(GOLDEN / name / "model.safetensors", rename or str)
            (folder / "model.safetensors").write_bytes(safetensors(tensors | (extra or {})))
        return Engine.load(folder, backend="reference").forward(Golden(name).ids)

    return run_changed


@pytest.fixture(scope="module")
def unchanged():
    """A function that runs a golden model on the reference backend."""
    return lambda name: Engine.load(GOLDEN / name, backend="reference").forward(Golden(name).ids)


def test_what_an_old_config_leaves_out_is_as_in_transformers(run, unchanged):
    without = ("global_attn_every_n_layers", "global_rope_theta", "local_rope_theta", "local_attention", "norm_eps",
               "layer_norm_eps", "norm_bias", "attention_bias", "mlp_bias", "hidden_activation",
               "position_embedding_type")
    assert_same_bits(run("modernbert_old", without), unchanged("modernbert_old"))


def test_what_a_new_config_leaves_out_is_as_in_transformers(run, unchanged):
    without = ("rope_parameters", "local_attention", "norm_eps", "norm_bias", "attention_bias", "mlp_bias",
               "hidden_activation")
    expected = unchanged("modernbert_new")
    assert_same_bits(run("modernbert_new", without), expected)
    assert_same_bits(run("modernbert_new", rope_parameters={"full_attention": None}), expected)
    assert_same_bits(run("modernbert_new", rope_parameters={"sliding_attention": {"rope_type": "default"}}), expected)


def test_one_model_in_both_dialects(run, unchanged):
    kinds = ["full_attention", "sliding_attention", "sliding_attention", "full_attention"]
    ropes = {"full_attention": DEFAULT | {"rope_theta": 160000.0}, "sliding_attention": DEFAULT}
    without = ("global_attn_every_n_layers", "global_rope_theta", "local_rope_theta")
    expected = unchanged("modernbert_old")
    assert_same_bits(run("modernbert_old", without, layer_types=kinds, rope_parameters=ropes), expected)
    assert_same_bits(run("modernbert_old", layer_types=kinds, rope_parameters=ropes), expected)
    assert_same_bits(run("modernbert_old", layer_types=None, rope_parameters=None, rope_scaling=None), expected)
    without = ("layer_types", "rope_parameters")
    assert_same_bits(run("modernbert_biases", without, global_rope_theta=80000, local_rope_theta=500),
                     unchanged("modernbert_biases"))


@pytest.mark.parametrize("changes", [
    {"sparse_prediction": True}, {"reference_compile": True}, {"deterministic_flash_attn": True},
    {"position_embedding_type": "sans_pos"}, {"embedding_dropout": 0.1, "mlp_dropout": 0.1, "attention_dropout": 0.1},
    {"classifier_activation": "silu", "classifier_bias": True, "classifier_pooling": "cls"}, {"decoder_bias": False},
    {"tie_word_embeddings": False}, {"architectures": ["ModernBertModel"]}, {"initializer_cutoff_factor": 3.0},
], ids=lambda changes: ", ".join(changes))  # fmt: skip
def test_keys_that_do_not_change_the_vectors_are_ignored(changes, run, unchanged):
    assert_same_bits(run("modernbert_old", **changes), unchanged("modernbert_old"))


def test_names_without_prefix_and_with_other_heads(run, unchanged):
    other = {"decoder.weight": (120, 36), "classifier.weight": (2, 36), "classifier.bias": (2,)}
    extra = {name: np.ones(shape, np.float32) for name, shape in other.items()}
    expected = unchanged("modernbert_old")
    assert_same_bits(run("modernbert_old", rename=lambda name: name.removeprefix("model.")), expected)
    assert_same_bits(run("modernbert_old", extra=extra), expected)


@pytest.mark.parametrize(("named", "changes"), [
    ("hidden_activation", {"hidden_activation": "laplace"}),
    ("hidden_activation", {"hidden_activation": None}),
    ("yarn", {"rope_parameters": {"full_attention": YARN, "sliding_attention": DEFAULT}}),
    ("yarn", {"rope_parameters": {"full_attention": DEFAULT | {"rope_theta": 160000.0}, "sliding_attention": YARN}}),
    ("yarn", {"rope_scaling": {"type": "yarn", "factor": 4.0}}),
    ("rope_theta", {"rope_parameters": {"full_attention": DEFAULT, "sliding_attention": DEFAULT}}),
    ("rope_theta", {"local_rope_theta": "10000"}),
    ("rope_theta", {"global_rope_theta": 0}),
    ("layer_types", {"layer_types": ["full_attention", "sliding_attention"] * 2}),
    ("layer_types", {"layer_types": ["full_attention", "chunked_attention", "sliding_attention", "full_attention"]}),
    ("layer_types", {"layer_types": ["full_attention", "sliding_attention", "sliding_attention"]}),
    ("layer_types", {"layer_types": "full_attention"}),
    ("global_attn_every_n_layers", {"global_attn_every_n_layers": 0}),
    ("local_attention", {"local_attention": -1}),
    ("local_attention", {"local_attention": "128"}),
    ("norm_bias", {"norm_bias": "no"}),
    ("attention_bias", {"attention_bias": 0.5}),
    ("norm_eps", {"norm_eps": "1e-5"}),
    ("heads", {"num_attention_heads": 5}),
    ("head", {"num_attention_heads": 4}),  # heads of 9 columns, which cannot be rotated in halves
    ("quantization_config", {"quantization_config": {"bits": 8}}),
], ids=str)  # fmt: skip
def test_a_config_that_the_engine_cannot_follow_is_refused_by_name(named, changes, run):
    with pytest.raises((UnsupportedError, WeightsError), match=named) as refusal:
        run("modernbert_old", **changes)
    assert "model_type" not in str(refusal.value)


def test_biases_that_the_config_states_must_be_there(run):
    for flag in ("norm_bias", "attention_bias", "mlp_bias"):
        with pytest.raises(WeightsError, match=r"\.bias"):  # the dot, for the path in the message has "biases" in it
            run("modernbert_old", **{flag: True})


def test_a_norm_in_layer_0_is_refused(run):
    extra = {"model.layers.0.attn_norm.weight": np.ones(36, np.float32)}
    with pytest.raises(WeightsError, match=r"attn_norm|attention\.norm"):
        run("modernbert_old", extra=extra)
