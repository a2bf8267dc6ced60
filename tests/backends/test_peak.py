"""Test the measured limits for plausibility, and the counts of operations and bytes."""

import pytest

from engine.model.config import ModelConfig

peak = pytest.importorskip("engine.backends.peak", reason="the compiled kernels are not built")

BERT_BASE = ModelConfig("bert", 768, 12, 12, 64, 3072, vocab_size=30522, max_positions=512, token_types=2)


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8"])
def test_measured_limits_are_positive(precision, monkeypatch):
    monkeypatch.setattr(peak, "ROUNDS", 10_000)
    monkeypatch.setattr(peak, "BUFFER", 2**20)
    measured = peak.measure_peak(2, repeats=1, precision=precision)
    assert measured.threads == 2
    assert measured.gops > 0
    assert measured.dram_read_gbs > 0


def test_higher_limits():
    assert peak.Peak(3, 1, 2).or_higher(peak.Peak(2, 5, 2)) == peak.Peak(3, 5, 2)


def test_work_of_bert_base():
    """The layers have 85.1 M parameters; 128 tokens take 22.35 GFLOP, counted by hand."""
    assert peak.weight_bytes(BERT_BASE) == 4 * 85_054_464
    assert peak.weight_bytes(BERT_BASE, "int8") == 12 * 12 * 768**2 + 4 * (85_054_464 - 12 * 12 * 768**2)
    assert peak.weight_bytes(BERT_BASE, "bfloat16") == 2 * 12 * 12 * 768**2 + 4 * (85_054_464 - 12 * 12 * 768**2)
    linear, attention = 12 * 128 * 2 * (4 * 768**2 + 2 * 768 * 3072), 12 * 4 * 128**2 * 768
    assert peak.forward_flops(BERT_BASE, [128]) == linear + attention
    assert peak.forward_flops(BERT_BASE, [128, 128]) == 2 * (linear + attention)
