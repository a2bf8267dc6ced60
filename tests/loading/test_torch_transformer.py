"""The first Transformer's encoder from a state dict of torch.nn.TransformerEncoder, against torch in float64."""

import numpy as np
import pytest

from engine import Engine, UnsupportedError, WeightsError
from engine.loading.torch_modules import read_torch_transformer
from engine.model.positions import sinusoids

from ..tools.encoders import engine_of, load_encoder, save_encoder
from ..tools.golden_models import GOLDEN, assert_same_bits, cosine, load
from ..tools.running import COMPILED

OPTIONS = {"post": {}, "pre": {"norm_first": True, "act": "gelu"}, "bare": {}}
SEQUENCES = 5


def read(name):
    """Return (state dict, words, number of heads, ids, vectors) of a golden model."""
    arrays = dict(np.load(GOLDEN / f"transformer_{name}.npz"))
    words, heads = arrays.pop("words"), int(arrays.pop("num_heads"))
    ids = [arrays.pop(f"ids_{i}").astype(int) for i in range(SEQUENCES)]
    hidden = [arrays.pop(f"hidden_{i}") for i in range(SEQUENCES)]
    return arrays, words, heads, ids, hidden


def model_of(name, **changes):
    state, words, heads, _, _ = read(name)
    options = {"num_heads": heads, "words": words, "max_positions": 130} | OPTIONS[name] | changes
    return read_torch_transformer(state, **options).encoder


@pytest.fixture(params=OPTIONS)
def name(request):
    return request.param


def test_vectors(name, backend, tmp_path):
    *_, ids, expected = read(name)
    model = model_of(name)
    save_encoder(model, tmp_path / "model.npz")
    engine = load(tmp_path / "model.npz", backend)
    hidden = engine.forward(ids)
    for found, exact in zip(hidden, expected, strict=True):
        assert np.abs(found - exact).max() <= 3e-5
    if backend != "reference":
        assert_same_bits(hidden, [engine.forward(one[None])[0] for one in ids])
    assert_same_bits(load(model, backend).forward(ids), hidden)


@pytest.mark.parametrize("backend", COMPILED)
@pytest.mark.parametrize(("precision", "least"), [("bfloat16", 0.999), ("int8", 0.97)])
def test_precisions(name, backend, precision, least):
    *_, ids, expected = read(name)
    hidden = load(model_of(name), backend, precision=precision).forward(ids)
    assert min(cosine(a, b).min() for a, b in zip(hidden, expected, strict=True)) >= least


def test_embeddings_of_the_caller(name):
    state, words, heads, ids, expected = read(name)
    D = words.shape[1]
    model = read_torch_transformer({f"encoder.{key}": array for key, array in state.items()}, num_heads=heads,
                                   **OPTIONS[name]).encoder
    assert (model.config.vocab_size, model.config.max_positions, model.config.embedding_scale) == (0, 0, 1.0)
    given = [words[one] * np.sqrt(D).astype(np.float32) + sinusoids(len(one), D) for one in ids]
    hidden = engine_of(model, backend="reference").forward(inputs_embeds=given)
    assert max(np.abs(found - exact).max() for found, exact in zip(hidden, expected, strict=True)) <= 3e-5


def test_sinusoids():
    table = sinusoids(3, 5)
    assert table.shape == (3, 5)
    assert table[0].tolist() == [0, 1, 0, 1, 0]
    slow = 2 * 10000.0 ** (-2 / 5)
    np.testing.assert_allclose(table[2, :4], [np.sin(2), np.cos(2), np.sin(slow), np.cos(slow)], rtol=1e-6)


def test_what_is_no_encoder():
    state, words, heads, _, _ = read("post")
    with pytest.raises(WeightsError, match=r"layers\.0\.linear1\.weight.*the names here are fc\.weight"):
        read_torch_transformer({"fc.weight": words}, num_heads=heads)
    with pytest.raises(WeightsError, match="cannot be split into 4 attention heads"):
        read_torch_transformer(state, num_heads=4)
    with pytest.raises(UnsupportedError, match="activation 'leaky_relu'"):
        read_torch_transformer(state, num_heads=heads, act="leaky_relu")
    partial = {key: array for key, array in state.items() if "layers.1.norm2" not in key}
    with pytest.raises(WeightsError, match=r"missing layers\.1\.ffn\.norm\.weight"):
        Engine(read_torch_transformer(partial, num_heads=heads), backend="reference")
    extra = state | {"decoder.layers.0.linear1.weight": words}
    with pytest.raises(WeightsError, match=r"unexpected decoder\.layers\.0\.linear1\.weight"):
        Engine(read_torch_transformer(extra, num_heads=heads), backend="reference")


def test_a_folder_of_this_name_is_unknown(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "transformer"}', encoding="utf-8")
    with pytest.raises(UnsupportedError, match="model_type 'transformer' is not supported"):
        load_encoder(tmp_path)
