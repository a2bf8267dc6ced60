"""Test the comparison of precisions: the file of pairs, rank correlation, and the results for known vectors."""

import math
from itertools import permutations

import numpy as np
import pytest

from engine import Model
from engine.studies import compare
from engine.studies.compare import compare_precision, parse_data, spearman

from ..tools.tiny_models import random_model


def test_scored_pairs():
    data = parse_data(["4.5\ta cat\tcats", "-1e-1\t\tdog"], "f.tsv")
    assert data.rows == [["a cat", "cats"], ["", "dog"]]
    np.testing.assert_array_equal(data.scores, [4.5, -0.1])


@pytest.mark.parametrize("lines", [["a cat", ""], ["a cat\tcats", "1\t2"]])
def test_text_alone(lines):
    data = parse_data(lines, "f.tsv")
    assert data.rows == [line.split("\t") for line in lines]
    assert data.scores is None


def test_malformed_lines_are_named(refusals):
    refusals(lambda lines: parse_data(lines, "f.tsv"), [
        [], ["1\ta\tb\tc"], ["1\ta\tb", "2\ta"], ["a", "2\ta"], ["1\ta\tb", "score\ta\tb"], ["nan\ta\tb"],
        ["3\ta\tb", "3.0\tc\td"],
    ])


def test_spearman_without_ties_is_the_textbook_formula():
    b = np.arange(5)
    for a in permutations(range(5)):
        distance = float(((np.array(a) - b) ** 2).sum())
        assert spearman(np.array(a), b) == pytest.approx(1 - 6 * distance / (5 * 24), abs=1e-12)


def test_spearman_of_ties():
    # Ranks 1.5 1.5 3 4 and 1 2.5 2.5 4: their centred products sum to 3.75, their squares to 4.5 each.
    assert spearman(np.array([7, 7, 8, 9]), np.array([0, 1, 1, 5])) == pytest.approx(3.75 / 4.5)
    assert math.isnan(spearman(np.ones(3), np.arange(3)))


VECTORS = {
    "float32": {"a": (1, 0), "b": (1, 0), "c": (1, 1), "d": (0, 1)},
    "int8": {"a": (2, 0), "b": (0, 3), "c": (1, 1), "d": (0, 1)},
}


class Fake:
    """An engine whose vectors are known."""

    def __init__(self, precision):
        self.vectors = VECTORS[precision]

    def encode(self, sentences, show_progress_bar):
        return np.array([self.vectors[sentence] for sentence in sentences], np.float32)


@pytest.fixture
def _fakes(monkeypatch):
    monkeypatch.setattr(compare, "load_model", lambda path, kind, revision: Model(encoder=random_model()))
    monkeypatch.setattr(compare, "convert_model", lambda model, precision: f"model in {precision}")

    def fake(model, *, backend, threads, precision, bits):
        assert model == f"model in {precision}"
        return Fake(precision)

    monkeypatch.setattr(compare, "Engine", fake)


@pytest.mark.usefixtures("_fakes")
def test_figures_of_known_vectors():
    # Cosines of the pairs in float32: a-b 1, b-c 0.71, c-d 0.71, a-d 0; in int8: a-b 0, b-c 0.71, c-d 0.71, a-d 0.
    data = parse_data(["3\ta\tb", "2\tb\tc", "1\tc\td", "0\ta\td"], "f.tsv")
    found = compare_precision("m.npz", "int8", data)
    # Two of the eight sentences are b, whose vector is turned by a right angle; lengths do not matter.
    assert (found.cosine_mean, found.cosine_min) == pytest.approx((0.75, 0))
    # Ranks of the scores 4 3 2 1 against 4 2.5 2.5 1, then against 1.5 3.5 3.5 1.5, which do not correlate.
    assert found.spearman == pytest.approx((100 * 4.5 / math.sqrt(5 * 4.5), 0))


@pytest.mark.usefixtures("_fakes")
def test_cosines_alone_without_scores():
    found = compare_precision("m.npz", "int8", parse_data(["a", "b"], "f.tsv"))
    assert (found.cosine_mean, found.cosine_min, found.spearman) == (0.5, 0.0, None)
