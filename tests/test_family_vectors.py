"""Families beyond BERT against transformers: the same weights, vectors computed in float64.

The scripts make_*.py in tests/golden made the files. The tests run on each backend that this machine has, and on the
weights both as they lie in the folder and after a round trip through the engine's .npz.
"""

from dataclasses import replace

import numpy as np
import pytest

from engine import UnsupportedError
from engine.backends.reference import ReferenceBackend
from engine.config import RunConfig
from engine.errors import InputError
from engine.model import load_model
from engine.packing import pack
from engine.weights.bfloat16 import from_bfloat16

from .golden_models import (
    GOLDEN,
    SEQUENCES,
    Golden,
    assert_near,
    assert_same_bits,
    assert_wrong,
    cosine,
    gate_and_up_swapped,
    load,
)

ROTARY = ("modernbert_new", "modernbert_old", "modernbert_biases", "nomic_own", "nomic_new", "gte_own", "gte_new",
          "gte_types", "eurobert_old", "eurobert_new", "jina_v3", "jina_v3_new", "neobert_own", "neobert_short",
          "neobert_long", "qwen3_old", "qwen3_new", "gemma_new", "gemma_old", "gemma_biased", "gemma_linear",
          "qwen3_yarn", "jina_v3_yarn", "eurobert_llama3", "nomic_linear", "gte_yarn", "modernbert_scaled",
          "modernbert_linear", "eurobert_dynamic")
BIASED = ("mpnet_own", "mpnet_head", "mpnet_relu", "t5_own", "t5_gated", "t5_near", "mt5_encoder", "mt5_whole",
          "mt5_relu", "umt5_encoder", "umt5_whole", "umt5_relu", "jina_v2", "jina_v2_short", "jina_v2_relu")
RELATIVE = ("deberta_v3", "deberta_p2c", "deberta_c2p", "deberta_own")
NARROW = ("albert_shared", "albert_groups", "albert_relu", "electra_small", "electra_base", "electra_generator")
LEARNT = ("bert_limit", "distilbert_limit", "distilbert_relu", "xlm_roberta", "camembert")
TOWERS = ("clip_own", "clip_projected", "clip_bare", "siglip_own", "siglip_text", "siglip2_text")
MODELS = ROTARY + BIASED + RELATIVE + NARROW + LEARNT + TOWERS
GATED = [name for name in ROTARY + BIASED
         if not name.startswith(("jina_v3", "mpnet", "t5_own", "mt5_relu", "umt5_relu"))]

LIMITS = {"bfloat16": (0.999, 0.999), "int8": (0.99, 0.97)}
"""Least cosine to the golden vectors: mean of all tokens, and of each token.

make_modernbert.py's NumPy computation, with weights and inputs of linear maps rounded (int8: by output row and by
token), gave at worst 0.99996 and 0.99973 in bfloat16, and 0.99909 and 0.98012 in int8. The kernels, on all instruction
sets and all rotary models, gave at worst 0.99990 and 0.99931 in bfloat16, and 0.99711 and 0.97557 in int8, with
NeoBERT. With biases by distance, AVX-512 with VDPBF16PS gave at worst 0.99991 and 0.99902 in bfloat16, and 0.99867 and
0.98910 in int8, with mT5.
"""


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
    # A position table is read by column, as transformers does, unless the model counts the tokens that are not padding.
    # With padding on the left, the caller has to give the positions.
    by_column = engine.config.position_table and not engine.config.position_offset
    positions = np.maximum(mask.cumsum(axis=1) - 1, 0) if by_column and not right else None
    hidden = engine.forward(ids, mask, types, positions)
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
    table = table.astype(np.float32) * np.float32(engine.config.embedding_scale)
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


def test_the_limit_of_the_length(engine_and_golden):
    engine, golden = engine_and_golden
    limit = engine.config.longest_sequence
    if limit is None:
        pytest.skip("the model takes sequences of every length")
    ids = np.random.default_rng(0).integers(4, engine.config.vocab_size, limit + 1)
    plain = ReferenceBackend(np.float64).prepare(engine.config, load_model(GOLDEN / golden.name).weights, RunConfig())
    for length in (limit - 1, limit):
        batch, _ = pack(engine.config, ids[None, :length])
        exact = plain.forward_unrounded(batch)
        assert np.abs(engine.forward(ids[None, :length])[0] - exact).max() <= 3e-5
    with pytest.raises(InputError, match=f"beyond the {limit} tokens"):
        engine.forward(ids[None])


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


def test_the_lists_name_every_golden_model():
    configs = {}
    for path in GOLDEN.glob("*/expected.npz"):
        with np.load(path) as file:
            if "ids_0" in file.files and (path.parent / "config.json").exists():
                configs[path.parent.name] = load_model(path.parent).config
    assert configs.keys() == set(MODELS)
    assert {name for name, config in configs.items() if config.gated} == set(GATED)
    assert {name for name, config in configs.items()
            if any(kind.rotary_theta or kind.rotary_frequencies for kind in config.attention_kinds)} == set(ROTARY)
    assert {name for name, config in configs.items() if config.attention_bias} == set(BIASED)


@pytest.mark.parametrize("name", GATED)
def test_a_swap_of_gate_and_up_shows(name, backend):
    assert_wrong(load(gate_and_up_swapped(load_model(GOLDEN / name)), backend), Golden(name))


@pytest.mark.parametrize("name", ROTARY)
def test_the_other_rotary_layout_shows(name, backend):
    model = load_model(GOLDEN / name)
    kinds = tuple(replace(kind, rotary_interleaved=not kind.rotary_interleaved)
                  for kind in model.config.attention_kinds)
    config = replace(model.config, attention_kinds=kinds)
    assert_wrong(load(replace(model, config=config), backend), Golden(name))


@pytest.mark.parametrize("name", ["neobert_own", "neobert_short", "neobert_long"])
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


@pytest.mark.parametrize("name", BIASED)
def test_a_change_of_the_bias_shows(name, backend):
    model, golden = load_model(GOLDEN / name), Golden(name)
    tables = {key: array for key, array in model.weights.items() if key.endswith("distance_bias.weight")}
    per_layer = model.config.num_layers if name.startswith("umt5") else 1
    assert len(tables) == (0 if name.startswith("jina") else per_layer)
    scale = None if model.config.attention_scale else 1.0
    assert_wrong(load(replace(model, config=replace(model.config, attention_scale=scale)), backend), golden)
    none = replace(model.config, attention_bias=None, bias_buckets=0, bias_max_distance=0, bias_in_layers=False)
    others = {key: array for key, array in model.weights.items() if key not in tables}
    assert_wrong(load(replace(model, config=none, weights=others), backend), golden)
    for key, table in tables.items():
        other_way = np.concatenate(np.split(table, 2)[::-1])
        assert_wrong(load(replace(model, weights=model.weights | {key: other_way}), backend), golden)


@pytest.mark.parametrize("name", ["umt5_encoder", "umt5_whole", "umt5_relu"])
def test_every_layer_has_its_own_bias(name, backend):
    model, golden = load_model(GOLDEN / name), Golden(name)
    first = model.weights["layers.0.attention.distance_bias.weight"]
    weights = {key: first if key.endswith("distance_bias.weight") else array for key, array in model.weights.items()}
    assert_wrong(load(replace(model, weights=weights), backend), golden)


@pytest.mark.parametrize("name", ["mpnet_own", "t5_own", "jina_v2"])
def test_padding_between_tokens_would_change_distances(name):
    engine = load(GOLDEN / name, "reference")
    with pytest.raises(InputError, match="distances in this model's attention"):
        engine.forward(np.full((1, 5), 9), np.array([[1, 1, 0, 1, 1]]))
