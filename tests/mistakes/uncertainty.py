"""Mistakes in calibration, in sets for a coverage, and in the test of shift."""

from __future__ import annotations

from .mistake import Mistake

MISTAKES = (
    Mistake(
        name="coverage-of-n",
        what="The threshold of a set counts n scores in place of n + 1.",
        file="engine/uncertainty/conformal.py",
        right="k = math.ceil(share * (len(scores) + 1))",
        wrong="k = math.ceil(share * len(scores))",
        tests="tests/uncertainty/test_conformal.py",
        caught_by=("tests/uncertainty/test_conformal.py::test_random_problems",),
    ),
    Mistake(
        name="coverage-in-binary",
        what="0.7 of 10 scores are 8, because 0.7 is taken for the binary fraction next to it.",
        file="engine/uncertainty/conformal.py",
        right="    share = Fraction(repr(float(coverage)))\n    k =",
        wrong="    share = Fraction(float(coverage) * (1 + 1e-15))\n    k =",
        tests="tests/uncertainty/test_conformal.py",
        caught_by=("tests/uncertainty/test_conformal.py::test_random_problems",),
    ),
    Mistake(
        name="aps-of-equal-classes",
        what="Of classes with equal probabilities, the first one has a smaller APS score.",
        file="engine/uncertainty/conformal.py",
        right="        sums[same, k] = sums[same, k + 1]",
        wrong="        sums[same, k] = sums[same, k]",
        tests="tests/uncertainty/test_conformal.py",
        caught_by=("tests/uncertainty/test_conformal.py::test_random_problems",),
    ),
    Mistake(
        name="bins-of-equal-width",
        what="Texts with equal confidences are in bins by their order.",
        file="engine/uncertainty/measures.py",
        right='    places = np.searchsorted(edges, confidences, side="right")',
        wrong="    places = np.argsort(np.argsort(confidences, kind=\"stable\")) * bins // n",
        tests="tests/uncertainty/test_measures.py",
        caught_by=("tests/uncertainty/test_measures.py::test_equal_confidences_share_a_bin",),
    ),
    Mistake(
        name="temperature-the-wrong-way",
        what="Logits are multiplied by the temperature.",
        file="engine/uncertainty/probabilities.py",
        right="logits.astype(np.float64) / temperature",
        wrong="logits.astype(np.float64) * temperature",
        tests="tests/uncertainty/test_django.py tests/studies/test_calibrate.py",
        caught_by=("tests/uncertainty/test_django.py::test_the_calibration_error_falls_to_half",),
    ),
    Mistake(
        name="distance-without-its-end",
        what="The test of shift counts orders that are farther apart, and not those that are as far apart.",
        file="engine/uncertainty/shift.py",
        right="        first = max(low, ((k + 1) * n - apart) // (n + m) + 1)",
        wrong="        first = max(low, ((k + 1) * n - apart - 1) // (n + m) + 1)",
        tests="tests/uncertainty/test_shift.py",
        caught_by=("tests/uncertainty/test_shift.py::test_all_orders",),
    ),
    Mistake(
        name="scores-of-fitted-texts",
        what="Sets get their thresholds from the texts that the temperature was fitted to.",
        file="engine/studies/calibrate.py",
        right="        right = np.arange(len(rest)), numbers[rest]\n        arrays =",
        wrong="        rest, after = first, probabilities(logits[first], *fitted)\n"
              "        right = np.arange(len(rest)), numbers[rest]\n        arrays =",
        tests="tests/studies/test_calibrate.py",
        caught_by=("tests/studies/test_calibrate.py::test_classes",),
    ),
    Mistake(
        name="old-runners-of-heads",
        what="An engine with a calibration keeps the heads that ran without it.",
        file="engine/interface/loaded.py",
        right='("_runners_of_heads", "_prompts")',
        wrong='("_prompts",)',
        tests="tests/studies/test_calibrate.py",
        caught_by=("tests/studies/test_calibrate.py::test_a_calibrated_result",),
    ),
    Mistake(
        name="rollout-in-the-wrong-order",
        what="Rollout multiplies the layers from the last one to the first.",
        file="engine/uncertainty/attention.py",
        right="product(np.ascontiguousarray(mixed), np.ascontiguousarray(found.T))",
        wrong="product(np.ascontiguousarray(found), np.ascontiguousarray(mixed.T))",
        tests="tests/uncertainty/test_attention.py",
        caught_by=("tests/uncertainty/test_attention.py::test_rollout",),
    ),
)
