"""Test weights in the blocks of GGUF files: their numbers, and models that run from them."""

import numpy as np
import pytest

from engine import Generator, load_model, save
from engine.backends import get_backend
from engine.backends.steps import Row
from engine.base.errors import InputError, UnsupportedError, WeightsError
from engine.files.gguf_blocks import KEPT, TYPES, dequantize, keep
from engine.loading.npz_model import IN_BLOCKS
from engine.model.precision import BLOCKS, FORMATS, STORED
from engine.model.run_config import RunConfig
from engine.weights.blocks import impossible_blocks, quantize_q8_0, to_q8_0, widen_blocks
from engine.weights.quantize import convert_model

from ..tools.gguf_files import Blocks, gguf
from ..tools.paths import FILES
from ..tools.running import COMPILED

NUMBERS = {kind.name: number for number, kind in TYPES.items()}
D, FFN, V, HEADS = 64, 96, 61, 2
SHAPES = {"attn_q": (D, D), "attn_k": (D // 2, D), "attn_v": (D // 2, D), "attn_output": (D, D), "ffn_gate": (FFN, D),
          "ffn_up": (FFN, D), "ffn_down": (D, FFN)}  # fmt: skip
MIXED = {"attn_q": "Q4_0", "attn_k": "Q4_1", "attn_v": "Q8_0", "attn_output": "Q5_0", "ffn_gate": "Q4_1",
         "ffn_up": "Q4_1", "ffn_down": "Q5_1"}  # fmt: skip


def random_blocks(rng, kind, shape):
    """Return random blocks whose numbers are about 0.1."""
    block = next(each for each in TYPES.values() if each.name == kind)
    data = rng.integers(0, 256, (shape[0] * shape[1] // 32, block.nbytes), np.uint8)
    scale = rng.random((len(data), 1)) * {"Q8_0": 2e-3, "Q5_0": 1e-2, "Q5_1": 1e-2}.get(kind, 2e-2)
    data[:, :2] = scale.astype("<f2").view("u1")
    if kind in ("Q4_1", "Q5_1"):
        data[:, 2:4] = (scale * {"Q4_1": -7.4, "Q5_1": -15.3}[kind]).astype("<f2").view("u1")
    return Blocks(NUMBERS[kind], shape, data.tobytes())


def file_of(path, kinds, words="Q8_0", heads=HEADS, seed=0):
    """Write a language model of two layers whose linear maps have these types, and return the path."""
    rng = np.random.default_rng(seed)
    tensors = {"token_embd.weight": random_blocks(rng, words, (V, D)) if words != "F16"
               else rng.standard_normal((V, D)).astype(np.float16) / np.float16(10),
               "output_norm.weight": np.ones(D, np.float32)}
    for layer in range(2):
        tensors |= {f"blk.{layer}.{name}.weight": np.ones(D, np.float32) for name in ("attn_norm", "ffn_norm")}
        tensors |= {f"blk.{layer}.{name}.weight": random_blocks(rng, kinds[name], shape)
                    for name, shape in SHAPES.items()}
    own = {"block_count": 2, "context_length": 128, "embedding_length": D, "feed_forward_length": FFN,
           "attention.head_count": heads, "attention.head_count_kv": heads // 2,
           "attention.layer_norm_rms_epsilon": 1e-5, "rope.freq_base": 10000.0}
    settings = {"general.architecture": "llama"} | {f"llama.{key}": value for key, value in own.items()}
    settings |= {f"tokenizer.ggml.{key}": value for key, value in {
        "model": "gpt2", "pre": "gpt-2", "tokens": [chr(97 + i) for i in range(V)], "merges": [],
        "bos_token_id": 1, "eos_token_id": 2}.items()}  # fmt: skip
    path.write_bytes(gguf(settings, tensors))
    return path


def logits_of(model, precision, backend="cython", threads=1, ids=range(3, 40)):
    run = RunConfig(precision=precision, threads=threads, cache="float32")
    decoder = get_backend(backend).prepare_decoder(model.decoder.config, model.decoder.weights, run)
    return decoder.step([Row(decoder.open(), None, np.array(ids), len(ids))]).logits


@pytest.mark.parametrize("name", KEPT)
def test_kept_blocks_have_the_numbers_of_llama_cpp(name):
    with np.load(FILES / "gguf.npz") as golden:
        blocks, numbers = golden[f"{name}.blocks"], golden[f"{name}.numbers"]
    kept = keep(TYPES[NUMBERS[name]], blocks.ravel()).reshape(len(numbers), -1)
    K = numbers[0].size
    assert np.array_equal(widen_blocks(kept, K), numbers.reshape(len(numbers), K))
    assert np.array_equal(widen_blocks(kept, K), dequantize(TYPES[NUMBERS[name]], blocks.ravel(), (len(numbers), K)))
    eight = widen_blocks(to_q8_0(kept), K)
    if "minimum" in (kept.dtype.names or ()):      # whose minima make of it another matrix than a scale and integers
        assert np.abs(eight - widen_blocks(kept, K)).max() <= np.abs(numbers).max() / 127 * 0.505
    else:
        assert np.array_equal(eight, widen_blocks(kept, K))


@pytest.mark.parametrize(("heads", "width"), [(1, 1), (1, 33), (3, 24), (4, 32)])
def test_blocks_end_with_each_head(heads, width):
    w = np.random.default_rng(width).standard_normal((5, heads * width), np.float32)
    stored = quantize_q8_0(w, heads)
    assert stored.shape == (5, heads * -(-width // 32))
    assert np.abs(widen_blocks(stored, heads * width, heads) - w).max() <= np.abs(w).max() / 127 * 0.505


def test_matrices_that_cannot_be_rounded():
    assert not widen_blocks(quantize_q8_0(np.zeros((1, 32), np.float32)), 32).any()
    for bad in (np.nan, np.inf):
        with pytest.raises(InputError, match="NaN or infinity"):
            quantize_q8_0(np.full((2, 32), bad, np.float32))
    with pytest.raises(WeightsError, match="q8_0 holds numbers up to 8,3"):
        quantize_q8_0(np.full((2, 32), 1e7, np.float32))


@pytest.mark.parametrize("name", BLOCKS)
def test_scales_are_finite(name):
    stored = np.zeros((2, 3), FORMATS[name].dtype)
    assert impossible_blocks(stored) is None
    for half in (field for field in stored.dtype.names if stored.dtype[field] == np.float16):
        stored[half][1, 2] = np.inf
        assert impossible_blocks(stored) == "a scale that is NaN or infinite"
        stored[half][1, 2] = 0


@pytest.mark.parametrize(("kinds", "words", "precision", "table"), [
    (dict.fromkeys(SHAPES, "Q8_0"), "Q8_0", "q8_0", "q8_0"),
    (dict.fromkeys(SHAPES, "Q4_0"), "Q5_1", "q4_0", "q8_0"),
    (dict.fromkeys(SHAPES, "Q5_0"), "Q4_0", "q8_0", "q8_0"),
    (dict.fromkeys(SHAPES, "Q5_1"), "Q5_1", "q8_0", "q8_0"),
    (MIXED, "F16", "q4_1", "float16"),
])  # fmt: skip
def test_models_run_from_the_blocks_of_their_file(tmp_path, kinds, words, precision, table):
    model = load_model(file_of(tmp_path / "m.gguf", kinds, words))
    weights = model.decoder.weights
    assert model.decoder.precision == precision
    assert STORED[weights["embeddings.word"].dtype] == table
    expected = logits_of(load_model(tmp_path / "m.gguf", precision="float32"), "float32", "reference")
    rounded = "Q5_1" in (words, *kinds.values())
    results = {backend: logits_of(model, precision, backend) for backend in {*COMPILED} - {"cuda"}}
    for backend, found in results.items():
        assert np.array_equal(found, results["cython"])
        assert np.abs(found - expected).max() <= (1e-2 if rounded else 2e-3) * np.abs(expected).max()
        assert np.array_equal(logits_of(model, precision, backend, threads=2), found)
        assert np.array_equal(logits_of(model, precision, backend, ids=range(3, 5)), found[:2])
    assert not np.array_equal(found, expected)
    for other in ("bfloat16", "int8", "q8_0", "int4"):
        assert np.abs(logits_of(model, other) - expected).max() <= (0.5 if other == "int4" else 0.1) * expected.max()


def test_blocks_are_those_of_the_file(tmp_path):
    """Nothing is copied or rounded; only the rows of queries and keys change places."""
    path = file_of(tmp_path / "m.gguf", MIXED)
    weights = load_model(path).decoder.weights
    found = {part: STORED[weights[f"layers.0.{part}.weight"].dtype] for part in (
        "attention.query", "attention.key", "attention.value", "attention.output", "ffn.gate", "ffn.up", "ffn.down")}
    assert found == {"attention.query": "q4_0", "attention.key": "q4_1", "attention.value": "q8_0",
                     "attention.output": "q8_0", "ffn.gate": "q4_1", "ffn.up": "q4_1", "ffn.down": "q8_0"}
    gate = weights["layers.1.ffn.gate.weight"]
    assert not gate.flags.owndata
    assert gate.tobytes() in path.read_bytes()


def test_files_in_blocks(tmp_path):
    model = load_model(file_of(tmp_path / "m.gguf", MIXED))
    expected = Generator(model).generate([[5, 6, 7]], max_new_tokens=12)[0]
    save(model, tmp_path / "m.npz")
    again = load_model(tmp_path / "m.npz")
    for name, array in model.decoder.weights.items():
        np.testing.assert_array_equal(again.decoder.weights[name], array, strict=True)
    with np.load(tmp_path / "m.npz") as file:       # NumPy reads the structs itself
        assert file["decoder.layers.0.attention.query.weight"].dtype == FORMATS["q4_0"].dtype
        assert f'"version": {IN_BLOCKS}'.encode() in bytes(file["config"])
    eight = convert_model(again, "q8_0")
    assert {STORED[eight.decoder.weights[f"layers.0.{part}.weight"].dtype]
            for part in ("attention.query", "ffn.gate")} == {"q8_0"}
    query = "layers.0.attention.query.weight"       # q4_0, of which q8_0 holds the same numbers
    assert np.array_equal(widen_blocks(eight.decoder.weights[query], D), widen_blocks(model.decoder.weights[query], D))
    for path in (tmp_path / "m.npz", tmp_path / "m.gguf"):
        assert Generator.load(path).generate([[5, 6, 7]], max_new_tokens=12)[0].ids == expected.ids


def test_heads_that_are_no_whole_blocks(tmp_path):
    """Kernels pad each head, which moves the weights behind it out of their blocks; that map is rounded to q8_0."""
    model = load_model(file_of(tmp_path / "m.gguf", dict.fromkeys(SHAPES, "Q4_0"), heads=4))
    output = model.decoder.weights["layers.0.attention.output.weight"]
    assert (STORED[output.dtype], output.shape) == ("q8_0", (D, 4))
    expected = logits_of(model, "float32", "reference")
    assert np.abs(logits_of(model, "q4_0") - expected).max() <= 5e-3 * np.abs(expected).max()


def test_precisions_that_a_model_cannot_have(tmp_path):
    with pytest.raises(UnsupportedError, match=r"precision 'q4_1' is for GGUF files .* these are in q8_0; int4 is"):
        load_model(file_of(tmp_path / "m.gguf", dict.fromkeys(SHAPES, "Q5_1"))).decoder.precision_for("q4_1")
    damaged = tmp_path / "damaged.gguf"
    data = bytearray(file_of(damaged, dict.fromkeys(SHAPES, "Q8_0")).read_bytes())
    data[-34:-32] = np.float16(np.inf).tobytes()
    damaged.write_bytes(data)
    with pytest.raises(WeightsError, match="holds a scale that is NaN or infinite"):
        load_model(damaged)
    data = bytearray(file_of(damaged, dict.fromkeys(SHAPES, "Q4_0"), heads=4).read_bytes())
    at = data.index(load_model(damaged).decoder.weights["layers.1.ffn.down.weight"].tobytes())
    data[at:at + 2] = np.float16(np.inf).tobytes()
    damaged.write_bytes(data)
    with pytest.raises(WeightsError, match="holds a scale that is NaN or infinite"):
        load_model(damaged)
    data = bytearray(file_of(damaged, dict.fromkeys(SHAPES, "Q5_1")).read_bytes())
    data[-24:-22] = np.float16(np.inf).tobytes()
    damaged.write_bytes(data)
    with pytest.raises(WeightsError, match=r"damaged\.gguf: 'blk\.1\.ffn_down\.weight': only a finite float32 matrix"):
        load_model(damaged)
