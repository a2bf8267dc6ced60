"""The convolutions of wav2vec 2.0 and HuBERT: in parts of time, with little memory, and from the document of a file."""

import tracemalloc

import numpy as np
import pytest

from engine import WeightsError
from engine.backends import get_backend
from engine.weights import waveform
from engine.weights.waveform import Waveform, make_waveform

from ..tools.encoders import load_encoder
from ..tools.paths import ENCODERS
from ..tools.speech import recording

NAMES = ("wav2vec2_base", "wav2vec2_large", "hubert_ctc")


def stem_of(name):
    return load_encoder(ENCODERS / name).stem


@pytest.mark.parametrize("name", NAMES)
def test_parts_of_time_change_no_bit(name, monkeypatch, backend):
    stem, samples = stem_of(name), recording(1.3)
    ops = get_backend(backend).ops(2)
    whole = stem.embed(samples, ops)
    assert len(whole) == stem.tokens(len(samples)) == 64
    monkeypatch.setattr(waveform, "PART_BYTES", 2**17)
    assert stem._tokens_of_part() == 14
    parts = stem.embed(samples, ops)
    if backend == "reference":      # whose products have other bits in other batches
        np.testing.assert_allclose(parts, whole, rtol=1e-4, atol=1e-4)
    else:
        assert np.array_equal(parts, whole)


def test_tokens_and_samples():
    stem = stem_of("wav2vec2_base")
    assert (stem.step, stem.reach) == (320, 400)
    counts = [stem.tokens(n) for n in (0, 9, 399, 400, 719, 720, 16000, 480000)]
    assert counts == [0, 0, 0, 1, 1, 2, 49, 1499]
    for n in range(1, 99):
        assert stem.tokens(stem._samples_for(n)) == n == stem.tokens(stem._samples_for(n + 1) - 1)


def test_memory_of_a_window_of_30_s():
    """The first convolution of a base model of 512 channels makes 197 MB of numbers of 30 s."""
    small, rng = stem_of("wav2vec2_base"), np.random.default_rng(0)
    arrays, before = {}, 1
    for i in range(7):
        kernel = small.arrays[f"conv_{i}.weight"].shape[1]
        # A layer of one row for each channel but the first, whose size is what counts.
        size = 512 if i == 0 else 8
        arrays[f"conv_{i}.weight"] = rng.standard_normal((size, kernel, before)).astype(np.float32) / 8
        before = size
    arrays |= {f"conv_norm_0.{kind}": np.ones(512, np.float32) for kind in ("weight", "bias")}
    arrays |= {"projection.weight": np.ones((24, 8), np.float32), "projection.bias": np.zeros(24, np.float32)}
    arrays |= {name: small.arrays[name] for name in ("positions.weight", "positions.bias")}
    stem = Waveform(arrays, small.strides, "group", small.eps)
    samples, ops = recording(30), get_backend("auto").ops(1)
    tracemalloc.start()
    assert stem.embed(samples, ops).shape == (1499, 24)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 64e6


@pytest.mark.parametrize("bias", [None, np.linspace(-1, 1, 12, dtype=np.float32)])
@pytest.mark.parametrize("shift", [0.0, 30.0])
def test_the_norm_of_each_channel_over_all_time(bias, shift):
    stem, samples = stem_of("wav2vec2_base"), recording(0.5) + np.float32(shift)
    arrays = dict(stem.arrays) | ({} if bias is None else {"conv_0.bias": bias})
    stem = Waveform(arrays, stem.strides, stem.norm, stem.eps)
    weight, shifted = stem._fold_norm_into_first(samples)
    windows = np.lib.stride_tricks.sliding_window_view(samples.astype(np.float64), 10)[::5]
    rows = windows @ arrays["conv_0.weight"][:, :, 0].astype(np.float64).T + (0 if bias is None else bias)
    expected = (rows - rows.mean(axis=0)) / np.sqrt(rows.var(axis=0) + 1e-5)
    expected = expected * arrays["conv_norm_0.weight"] + arrays["conv_norm_0.bias"]
    found = windows @ weight[:, :, 0].astype(np.float64).T + shifted
    assert np.abs(found - expected).max() < 2e-5 * max(1.0, shift)
    silent, _ = stem._fold_norm_into_first(np.full(4000, shift, np.float32))       # a variance of 0
    assert np.isfinite(silent).all()


def test_a_document_as_a_file_has_it():
    stem = stem_of("wav2vec2_large")
    again = make_waveform(stem.document(), stem.arrays)
    assert again.document() == stem.document()
    assert all(np.array_equal(again.arrays[name], array) for name, array in stem.arrays.items())


@pytest.mark.parametrize("changes", [
    {"strides": []}, {"strides": [0]}, {"strides": 5}, {"norm": "batch"}, {"norm": ["group"]}, {"eps": 1},
    {"eps": 2.0}, {"activation": "softplus"}, {"more": 1}])
def test_documents_that_do_not_fit(changes):
    stem = stem_of("wav2vec2_base")
    with pytest.raises(WeightsError, match="a stem of the kind waveform must have strides"):
        make_waveform(stem.document() | changes, stem.arrays)


def test_arrays_that_do_not_fit(refusals):
    stem = stem_of("wav2vec2_base")
    refusals(lambda name, array: make_waveform(stem.document(), {
        key: value for key, value in (dict(stem.arrays) | {name: array}).items() if value is not None}), [
        ("conv_3.weight", None), ("conv_7.weight", np.ones((1, 1, 1), np.float32)), ("projection.bias", None),
        ("conv_1.weight", np.ones((10, 3, 11), np.float32)), ("conv_norm_0.bias", np.ones(11, np.float32)),
        ("conv_0.bias", np.ones(12)), ("norm.weight", None), ("positions.weight", np.ones((24, 16, 5), np.float32)),
        ("positions.bias", np.full(24, np.nan, np.float32)), ("projection.weight", np.ones(24, np.float32)),
    ])
