"""The vectors of every family against transformers: the same weights, vectors computed in float64 or float32.

The writers in tests/golden/make made the files. test_npz_of_golden_models.py shows that a model is the same after a
round trip through the engine's .npz.
"""


import numpy as np
import pytest

from engine import UnsupportedError
from engine.backends.reference import ReferenceBackend
from engine.base.errors import InputError
from engine.encoding.packing import pack
from engine.model.run_config import RunConfig
from engine.weights.bfloat16 import from_bfloat16

from ..tools.encoders import load_encoder
from ..tools.golden_models import (
    GOLDEN,
    MODELS,
    Golden,
    arrays_of,
    assert_near,
    assert_same_bits,
    assert_vectors,
    cosine,
    load,
    models_with,
    one_of_each,
)
from ..tools.running import RUNNING

LIMITS = {"bfloat16": (0.999, 0.999), "int8": (0.99, 0.97)}
"""Least cosine to the golden vectors: mean of all tokens, and of each token.

ModernBERT in NumPy, with weights and inputs of linear maps rounded (int8: by output row and by token), gave at worst
0.99996 and 0.99973 in bfloat16, and 0.99909 and 0.98012 in int8. The kernels, on all instruction
sets and all rotary models, gave at worst 0.99990 and 0.99931 in bfloat16, and 0.99711 and 0.97557 in int8, with
NeoBERT. With biases by distance, AVX-512 with VDPBF16PS gave at worst 0.99991 and 0.99902 in bfloat16, and 0.99867 and
0.98910 in int8, with mT5.
"""


@pytest.fixture(scope="module", params=MODELS)
def golden(request):
    return Golden(request.param)


@pytest.fixture(scope="module")
def engine(golden, one_backend):
    return load(GOLDEN / golden.name, one_backend)


@pytest.mark.parametrize("name", MODELS)
def test_a_ragged_batch_and_each_alone(name, backend):
    """The compiled backends give the same bits in any batch, on 2 threads and on one.

    The reference, which is slow, does not promise it.
    """
    engine, golden = load(GOLDEN / name, backend, threads=2), Golden(name)
    together = golden.forward(engine)
    for i, ids in enumerate(golden.ids):
        assert together[i].shape == (len(ids), engine.config.hidden_size)
        assert_near(together[i], golden, i)
    if backend != "reference":
        engine = load(GOLDEN / name, backend, threads=1)
        alone = [golden.forward_alone(engine, i) for i in range(len(golden.ids))]
        assert_same_bits(together, alone)
        reversed_types = None if golden.types is None else golden.types[::-1]
        assert_same_bits(engine.forward(golden.ids[::-1], None, reversed_types)[::-1], alone)


@pytest.mark.parametrize("name", one_of_each(lambda config: (config.gated, config.norm, config.norm_place,
                                                             bool(config.biases), bool(config.relative))))
def test_three_products_of_two_parts(name, monkeypatch):
    """bfloat16x3 may be ten times as far away as float32, with whatever a linear map is joined to.

    tests/backends/cpu/test_random_models.py compares it with its definition, for every option of a model.
    """
    isa = pytest.importorskip("engine.backends.cython_cpu.isa", reason="the compiled kernels are not built")
    kernels = next((table for table in isa.available() if isa.load(table).product("bfloat16x3").exists), None)
    if kernels is None:
        pytest.skip("no kernels here have it")
    monkeypatch.setenv("ENGINE_ISA", kernels)
    golden = Golden(name)
    for i, hidden in enumerate(golden.forward(load(GOLDEN / name, "cython", precision="bfloat16x3"))):
        rows, expected = golden.expected(i)
        assert np.abs(hidden[rows] - expected).max() <= 3e-4
        assert cosine(hidden[rows], expected).min() >= 1 - 1e-8


def test_padded_batches(engine, golden):
    """Padding is taken away and put back before and after the backend."""
    for right in (True, False):
        ids, mask, types = golden.padded(engine.config.pad_token_id, right)
        # A position table is read by column, as transformers does, unless the model counts the tokens that are not
        # padding. With padding on the left, the caller has to give the positions.
        by_column = engine.config.position_table and not engine.config.position_offset
        positions = np.maximum(mask.cumsum(axis=1) - 1, 0) if by_column and not right else None
        hidden = engine.forward(ids, mask, types, positions)
        assert not hidden[mask == 0].any()
        for i in range(len(golden.ids)):
            assert_near(hidden[i][mask[i] == 1], golden, i)
        if engine.backend != "reference":
            found = [rows[kept == 1] for rows, kept in zip(hidden, mask, strict=True)]
            assert_same_bits(found, golden.forward(engine))


def with_array(key):
    return [name for name in MODELS if key in arrays_of(name)]


@pytest.mark.parametrize("name", with_array("ids_holes"))
def test_holes_in_the_mask(name, backend):
    # The window counts columns, so that a hole takes room in it. To refuse such a mask would be right as well.
    engine, golden = load(GOLDEN / name, backend), Golden(name)
    ids, mask = golden.arrays["ids_holes"].astype(int), golden.arrays["mask_holes"]
    try:
        hidden = engine.forward(ids[None], mask[None])[0]
    except (InputError, UnsupportedError):
        return
    assert_near(hidden, golden, "holes")


@pytest.mark.parametrize("name", with_array("input_ids"))
def test_a_batch_of_transformers_with_holes_and_padding_on_both_sides(name, backend):
    engine, golden = load(GOLDEN / name, backend), Golden(name)
    ids, mask, types = (golden.arrays[key].astype(int) for key in ("input_ids", "attention_mask", "token_type_ids"))
    hidden = engine.forward(ids, mask, types if engine.config.token_types else None)
    assert_vectors(hidden[mask == 1], golden.arrays["hidden"], golden)
    assert not hidden[mask == 0].any()


def test_embeddings_in_place_of_ids(engine, golden):
    table = load_encoder(GOLDEN / golden.name).weights["embeddings.word"]
    table = from_bfloat16(table) if table.dtype == np.uint16 else table
    table = table.astype(np.float32) * np.float32(engine.config.embedding_scale)
    types = None if golden.types is None else golden.types[3][None]
    assert_near(engine.forward(inputs_embeds=table[golden.ids[3]][None], token_type_ids=types)[0], golden, 3)


@pytest.mark.parametrize("name", models_with(lambda config: config.longest_sequence and not config.dense_tokens))
def test_the_limit_of_the_length(name, one_backend):
    engine = load(GOLDEN / name, one_backend)
    limit = engine.config.longest_sequence
    ids = np.random.default_rng(0).integers(4, engine.config.vocab_size, limit + 1)
    ids[ids == engine.config.dropped_id] = 4        # the plan alone does not know the rule for masks
    plain = ReferenceBackend(np.float64).prepare(engine.config, load_encoder(GOLDEN / name).weights, RunConfig())
    batch, _ = pack(engine.config, ids[None, :limit])
    assert np.abs(engine.forward(ids[None, :limit])[0] - plain.forward_unrounded(batch)).max() <= 3e-5
    with pytest.raises(InputError, match=f"beyond the {limit} tokens"):
        engine.forward(ids[None])


PRECISIONS = [(name, precision, backend) for i, name in enumerate(MODELS) for precision in LIMITS
              for backend in ("cython", "numba") if backend in RUNNING
              if backend == "cython" or precision == tuple(LIMITS)[i % len(LIMITS)]]
"""Every model in both precisions on the compiled kernels, and in one of them, by turns, on Numba's."""


@pytest.mark.parametrize(("name", "precision", "backend"), PRECISIONS)
def test_precisions(name, precision, backend):
    engine, golden = load(GOLDEN / name, backend, precision=precision), Golden(name)
    batch = golden.forward(engine)
    assert_same_bits(batch, [golden.forward_alone(engine, i) for i in range(len(golden.ids))])
    cosines = []
    for i, hidden in enumerate(batch):
        rows, expected = golden.expected(i)
        cosines.append(cosine(hidden[rows], expected))
    cosines = np.concatenate(cosines)
    mean, lowest = LIMITS[precision]
    assert cosines.mean() >= mean
    assert cosines.min() >= lowest


def test_the_rows_name_every_golden_model():
    assert {path.parent.name for path in GOLDEN.glob("*/expected.npz")} == {*MODELS, "minilm"}
    assert len(MODELS) == len(set(MODELS)) >= 69


@pytest.mark.parametrize("name", ["qwen3_old", "qwen3_new"])
def test_a_token_is_computed_from_those_before_it(name, one_backend):
    engine, golden = load(GOLDEN / name, one_backend), Golden(name)
    ids = golden.ids[-1].copy()
    before = engine.forward(ids[None])[0]
    ids[200:] = ids[200:][::-1]
    after = engine.forward(ids[None])[0]
    assert np.abs(after[:200] - before[:200]).max() <= 3e-5
    assert np.abs(after[200:] - before[200:]).max() > 0.1


@pytest.mark.parametrize("name", ["mpnet_own", "t5_own", "jina_v2"])
def test_padding_between_tokens_would_change_distances(name):
    engine = load(GOLDEN / name, "reference")
    with pytest.raises(InputError, match="distances in this model's attention"):
        engine.forward(np.full((1, 5), 9), np.array([[1, 1, 0, 1, 1]]))
