"""Families with rotary positions against transformers: the same weights, the vectors computed in float64.

tests/golden/make_modernbert.py and make_families.py made the files. The tests run on each backend that this machine
has, and on the weights both as they lie in the folder and after a round trip through the engine's own .npz.
"""

from dataclasses import replace

import numpy as np
import pytest

from engine import UnsupportedError
from engine.errors import InputError
from engine.model import load_model, save_model
from engine.weights.bfloat16 import from_bfloat16

from .golden_models import GOLDEN, SEQUENCES, Golden, assert_near, assert_same_bits, cosine, load

MODELS = ("modernbert_new", "modernbert_old", "modernbert_biases", "nomic_own", "nomic_new", "gte_own", "gte_new",
          "eurobert_old", "eurobert_new", "jina_v3", "jina_v3_new", "neobert_own", "neobert_short",
          "qwen3_old", "qwen3_new")
GATED = [name for name in MODELS if not name.startswith("jina")]

LIMITS = {"bfloat16": (0.999, 0.999), "int8": (0.99, 0.97)}
"""Least cosine to the golden vectors: mean of all tokens, and of each token.

make_modernbert.py's NumPy computation, with weights and inputs of linear maps rounded (int8: by output row and by
token), gave at worst 0.99996 and 0.99973 in bfloat16, and 0.99909 and 0.98012 in int8. The kernels, on all instruction
sets and all models, gave at worst 0.99990 and 0.99931 in bfloat16, and 0.99711 and 0.97557 in int8, with NeoBERT.
"""


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


def test_ragged_batch(engine_and_golden):
    engine, golden = engine_and_golden
    for i, hidden in enumerate(golden.forward(engine)):
        assert hidden.shape == (len(golden.ids[i]), engine.config.hidden_size)
        assert_near(hidden, golden, i)


def test_each_alone(engine_and_golden):
    engine, golden = engine_and_golden
    for i in range(SEQUENCES):
        assert_near(golden.forward_alone(engine, i), golden, i)


@pytest.mark.parametrize("right", [True, False], ids=["padded on the right", "padded on the left"])
def test_padded_batch(engine_and_golden, right):
    engine, golden = engine_and_golden
    ids, mask, types = golden.padded(engine.config.pad_token_id, right)
    hidden = engine.forward(ids, mask, types)
    assert not hidden[mask == 0].any()
    for i in range(SEQUENCES):
        assert_near(hidden[i][mask[i] == 1], golden, i)


def test_holes_in_the_mask(engine_and_golden):
    # The window counts columns, so that a hole takes room in it. To refuse such a mask would be right as well.
    engine, golden = engine_and_golden
    if "ids_holes" not in golden.arrays:
        pytest.skip("the golden file has no mask with holes")
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
    types = None if golden.types is None else golden.types[3][None]
    assert_near(engine.forward(inputs_embeds=table[golden.ids[3]][None], token_type_ids=types)[0], golden, 3)


def test_bits_depend_on_the_sequence_alone(engine_and_golden, backend):
    if backend == "reference":
        pytest.skip("the reference backend does not promise it")
    engine, golden = engine_and_golden
    alone = [golden.forward_alone(engine, i) for i in range(SEQUENCES)]
    assert_same_bits(golden.forward(engine), alone)
    reversed_types = None if golden.types is None else golden.types[::-1]
    assert_same_bits(engine.forward(golden.ids[::-1], None, reversed_types)[::-1], alone)
    ids, mask, types = golden.padded(engine.config.pad_token_id)
    padded = engine.forward(ids, mask, types)
    assert_same_bits([hidden[row == 1] for hidden, row in zip(padded, mask, strict=True)], alone)


@pytest.mark.parametrize("precision", LIMITS)
@pytest.mark.parametrize("name", MODELS)
def test_precisions(name, precision, backend, path_of):
    if backend == "reference":
        pytest.skip("the reference backend has float32 only")
    engine, golden = load(path_of(name), backend, precision=precision), Golden(name)
    batch = golden.forward(engine)
    assert_same_bits(batch, [golden.forward_alone(engine, i) for i in range(SEQUENCES)])
    cosines = []
    for i, hidden in enumerate(batch):
        rows, expected = golden.expected(i)
        cosines.append(cosine(hidden[rows], expected))
    cosines = np.concatenate(cosines)
    mean, lowest = LIMITS[precision]
    assert cosines.mean() >= mean
    assert cosines.min() >= lowest


def assert_wrong(engine, golden):
    """The vectors are far from those of the golden file, in every sequence that is long enough to show a mistake."""
    for i, hidden in enumerate(golden.forward(engine)):
        rows, expected = golden.expected(i)
        assert len(rows) < 3 or np.abs(hidden[rows] - expected).max() > 0.1


@pytest.mark.parametrize("name", GATED)
def test_a_swap_of_gate_and_up_shows(name, backend):
    model = load_model(GOLDEN / name)
    weights = dict(model.weights)
    for i in range(model.config.num_layers):
        for kind in ("weight", "bias"):
            gate, up = f"layers.{i}.ffn.gate.{kind}", f"layers.{i}.ffn.up.{kind}"
            assert (gate in weights) == (up in weights)
            if gate in weights:
                weights[gate], weights[up] = weights[up], weights[gate]
    assert "layers.0.ffn.gate.weight" in weights
    assert_wrong(load(replace(model, weights=weights), backend), Golden(name))


@pytest.mark.parametrize("name", MODELS)
def test_the_other_rotary_layout_shows(name, backend):
    model = load_model(GOLDEN / name)
    kinds = tuple(replace(kind, rotary_interleaved=not kind.rotary_interleaved)
                  for kind in model.config.attention_kinds)
    config = replace(model.config, attention_kinds=kinds)
    assert_wrong(load(replace(model, config=config), backend), Golden(name))


@pytest.mark.parametrize("name", ["neobert_own", "neobert_short"])
def test_joined_rows_in_the_other_order_show(name):
    model = load_model(GOLDEN / name)
    weights, H = dict(model.weights), model.config.num_heads
    for i in range(model.config.num_layers):
        names = [f"layers.{i}.attention.{part}.weight" for part in ("query", "key", "value")]
        parts = [weights[n] for n in names]
        stored = np.stack([part.reshape(H, -1, part.shape[1]) for part in parts], axis=1).reshape(-1, parts[0].shape[1])
        weights |= dict(zip(names, np.split(stored, 3), strict=True))
    assert_wrong(load(replace(model, weights=weights), "reference"), Golden(name))


@pytest.mark.parametrize("name", ["qwen3_old", "qwen3_new"])
def test_a_token_is_computed_from_those_before_it(name, backend):
    engine, golden = load(GOLDEN / name, backend), Golden(name)
    ids = golden.ids[-1].copy()
    before = engine.forward(ids[None])[0]
    ids[200:] = ids[200:][::-1]
    after = engine.forward(ids[None])[0]
    assert np.abs(after[:200] - before[:200]).max() <= 3e-5
    assert np.abs(after[200:] - before[200:]).max() > 0.1


@pytest.mark.parametrize("name", ["qwen3_old", "qwen3_new"])
def test_attention_in_both_directions_and_absent_norms_show(name, backend):
    model, golden = load_model(GOLDEN / name), Golden(name)
    kinds = tuple(replace(kind, causal=False) for kind in model.config.attention_kinds)
    assert_wrong(load(replace(model, config=replace(model.config, attention_kinds=kinds)), backend), golden)
    weights = {key: array for key, array in model.weights.items() if "y_norm" not in key}
    assert_wrong(load(replace(model, config=replace(model.config, head_norm=False), weights=weights), backend), golden)
