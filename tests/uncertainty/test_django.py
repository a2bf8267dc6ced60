"""A real task: the app of a message of Django, by a head on frozen vectors of all-MiniLM-L6-v2.

tests/golden/make/calibration.py trained the head and wrote the logits of messages that the head has not seen.
"""

import numpy as np
import pytest

from engine.uncertainty.conformal import SCORES, threshold
from engine.uncertainty.measures import measure
from engine.uncertainty.probabilities import probabilities
from engine.uncertainty.temperature import fit_scale_and_bias, fit_temperature

from ..tools.paths import HEADS

SPLITS = 200
COVERAGES = (0.8, 0.9, 0.95)
PRECISIONS = ("float32", "bfloat16", "int8")
FEW = 40
"""Splits in which all precisions are tried."""


@pytest.fixture(scope="module")
def golden():
    with np.load(HEADS / "calibration.npz") as file:
        return {name: file[name] for name in file.files}


def split(seed, count):
    """Return the texts to fit to, those that calibrate sets, and those that try both."""
    order = np.random.default_rng(seed).permutation(count)
    return np.split(order, [count // 3, 2 * count // 3])


def halves_the_error(logits, labels, fit):
    """Return whether a calibrator at least halves the calibration error of texts that it has not seen."""
    first, _, rest = split(0, len(labels))
    before = measure(probabilities(logits[rest]), labels[rest])
    after = measure(probabilities(logits[rest], *fit(logits[first], labels[first])), labels[rest])
    assert after.count == len(rest)
    return after.ece <= before.ece / 2 and after.log_loss < before.log_loss


def test_the_calibration_error_falls_to_half(golden):
    logits, labels = golden["held.float32"], golden["held.labels"].astype(int)
    assert halves_the_error(logits, labels, lambda z, y: (fit_temperature(z, y),))
    assert halves_the_error(logits, labels, fit_scale_and_bias)
    assert not halves_the_error(logits, labels, lambda z, y: ())       # a calibrator that does nothing


def softmax(rows):
    """Return the probabilities of all rows at once; `probabilities` computes each row alone, which takes long here."""
    p = np.exp(rows - rows.max(axis=1, keepdims=True))
    return p / p.sum(axis=1, keepdims=True)


@pytest.fixture(scope="module")
def held_scores(golden):
    """Return for each split the three parts, and for each precision and score those of the labels of all texts.

    The temperature is that of the logits in float32, as in a file that is calibrated in float32 and runs in others.
    """
    some = golden["held.float32"].astype(np.float64) / 3
    np.testing.assert_allclose(softmax(some), probabilities(golden["held.float32"], 3.0), rtol=1e-14)
    logits, labels = golden["held.float32"], golden["held.labels"].astype(int)
    rows = np.arange(len(labels))
    found = []
    for seed in range(SPLITS):
        parts = split(seed, len(labels))
        temperature = fit_temperature(logits[parts[0]], labels[parts[0]])
        names = PRECISIONS if seed < FEW else PRECISIONS[:1]
        p = {name: softmax(golden[f"held.{name}"].astype(np.float64) / temperature) for name in names}
        found.append((parts, {(name, score): SCORES[score](own)[rows, labels]
                              for name, own in p.items() for score in SCORES}))
    return found


def coverages(held_scores, wanted, score, precision="float32"):
    """Return the share of texts whose sets hold their label, in each of the splits."""
    return np.array([(own[precision, score][rest] <= threshold(own["float32", score][calibration], wanted)).mean()
                     for (_, calibration, rest), own in held_scores])


def keeps_its_promise(found, wanted):
    error = found.std() / SPLITS**0.5
    return abs(found.mean() - wanted) <= 0.01 and found.mean() >= wanted - 2 * error


@pytest.mark.parametrize("score", SCORES)
def test_sets_hold_the_label_as_often_as_promised(held_scores, score):
    for wanted in COVERAGES:
        assert keeps_its_promise(coverages(held_scores, wanted, score), wanted)


def test_sets_without_calibration_break_the_promise(golden):
    """The classes whose probabilities add up to the coverage, which takes the probabilities at their word."""
    logits, labels = golden["held.float32"], golden["held.labels"].astype(int)
    for wanted in COVERAGES:
        inside = SCORES["aps"](probabilities(logits))[np.arange(len(labels)), labels] <= wanted
        assert not keeps_its_promise(np.full(SPLITS, inside.mean()), wanted)


@pytest.mark.parametrize("precision", PRECISIONS[1:])
def test_coverage_in_fewer_bits(held_scores, precision):
    """Sets that were calibrated in float32 hold the label nearly as often in fewer bits: docs have the figures.

    They may move by the standard deviation that the coverage of so many texts has anyway.
    """
    some = held_scores[:FEW]
    for score in SCORES:
        for wanted in COVERAGES:
            own, other = (coverages(some, wanted, score, name) for name in ("float32", precision))
            print(f"{precision} {score} {wanted}: {own.mean():.4f} to {other.mean():.4f}")
            assert abs(other.mean() - own.mean()) < own.std()


def test_other_languages_break_the_promise(golden):
    """Texts unlike those of the calibration: the sets hold fewer labels than promised, as docs/uncertainty.md says."""
    logits, labels = golden["held.float32"], golden["held.labels"].astype(int)
    first, calibration, _ = split(0, len(labels))
    temperature = fit_temperature(logits[first], labels[first])
    scores = SCORES["lac"](probabilities(logits, temperature))[calibration, labels[calibration]]
    other, right = golden["other.float32"], golden["other.labels"].astype(int)
    inside = SCORES["lac"](probabilities(other, temperature))[np.arange(len(right)), right] <= threshold(scores, 0.9)
    assert inside.mean() < 0.85
