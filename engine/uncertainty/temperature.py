"""Fit a temperature, or a temperature and a bias for each class, to labelled logits: Guo et al. 2017, section 4.

Both minimise the log loss over the labelled texts, in float64. The log loss is convex in 1/T and b.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ..base.errors import InputError

LEAST, MOST = 1e-3, 1e3
"""The range of temperatures in which the best one is searched."""
GOLDEN = (math.sqrt(5) - 1) / 2     # 0.618: the part of an interval that a step of a golden section search keeps
STEPS = 200
"""The most steps of Newton's method; about ten are usual."""
BLOCK_LOGITS = 2**20
"""How many logits `log_loss` converts to float64 at a time: 8 MB of them."""
RIDGE = 1e-6
"""The weight of the sum of the squared biases, which makes the best biases unique: adding a number to all of them
changes no probability, and the bias of a class that no text has would otherwise fall without end."""


def log_loss(logits: np.ndarray, labels: np.ndarray, scale: float = 1.0, bias: np.ndarray | float = 0.0) -> float:
    """Return the mean over rows of log(sum(exp(z))) - z[label], where z is logits [n, K] times scale, plus bias.

    labels: integers [n]. scale: 1 / temperature. bias: [K], or one number.
    """
    n, step = len(labels), max(1, BLOCK_LOGITS // logits.shape[1])
    losses = np.empty(n)
    for first in range(0, n, step):
        rows = logits[first : first + step].astype(np.float64) * scale + bias
        label_logits = rows[np.arange(len(rows)), labels[first : first + step]]
        rows -= (top := rows.max(axis=1))[:, None]      # no exponential overflows then
        losses[first : first + step] = np.log(np.exp(rows).sum(axis=1)) + (top - label_logits)
    return float(losses.mean())


def fit_temperature(logits: np.ndarray, labels: np.ndarray) -> float:
    """Return the temperature T with the least log loss of softmax(z / T), by a golden section search over log(T).

    logits: [n, K], or [n, 1] for the classes "no" and "yes"; labels: integers [n]. Raises `InputError` if the log loss
    has no minimum: if no text is wrong, or the logits say nothing about the labels.
    """
    rows = two_classes(logits)
    return fit_scale(lambda temperature: log_loss(rows, labels, 1 / temperature))


def fit_scale(loss: Callable[[float], float]) -> float:
    """Return the temperature with the least loss, a function with one minimum; raises `InputError` without one."""
    # The minimum is in [a, b]; c and d divide the interval, so that each step computes one loss and reuses the other.
    a, b = math.log(LEAST), math.log(MOST)
    c, d = b - GOLDEN * (b - a), a + GOLDEN * (b - a)
    at_c, at_d = loss(math.exp(c)), loss(math.exp(d))
    while b - a > 1e-9:         # of the logarithm, which is the relative error of the temperature
        # Where both are equal, the minimum is between them, or the function is level there within rounding.
        if at_c <= at_d:
            b, d, at_d = d, c, at_c
            c = b - GOLDEN * (b - a)
            at_c = loss(math.exp(c))
        else:
            a, c, at_c = c, d, at_d
            d = a + GOLDEN * (b - a)
            at_d = loss(math.exp(d))
    temperature = math.exp((a + b) / 2)
    if temperature < 1.01 * LEAST:
        raise InputError("no temperature is the best: the best class of every labelled text is the right one, so the "
                         "log loss falls as the temperature does; calibrate on more texts, with some mistakes "
                         "among them")
    if temperature > 0.99 * MOST:
        raise InputError("no temperature is the best: the logits say less about these labels than equal probabilities "
                         "for all classes; check that the labels belong to the texts, and to this model")
    return temperature


def fit_scale_and_bias(logits: np.ndarray, labels: np.ndarray) -> tuple[float, NDArray[np.float64]]:
    """Return the temperature T and the biases [K] with the least log loss of softmax(z / T + b), by Newton's method.

    logits: [n, K], or [n, 1] for the classes "no" and "yes", whose one bias is that of "yes". The mean of several
    biases is 0. Raises the errors of `fit_temperature`.
    """
    start = fit_temperature(logits, labels)
    single = logits.shape[1] == 1
    rows = two_classes(logits).astype(np.float64)
    n, K = rows.shape
    right = np.zeros((n, K))        # 1 for the right class of each row
    right[np.arange(n), labels] = 1
    point = np.concatenate([[1 / start], np.zeros(K)])      # (1/T, biases)

    def loss(point: NDArray[np.float64]) -> float:
        return log_loss(rows, labels, point[0], point[1:]) + RIDGE / 2 * float(point[1:] @ point[1:])

    before = loss(point)
    for _ in range(STEPS):
        gradient, hessian = _derivatives(rows, right, point)
        step = np.linalg.solve(hessian, gradient)
        length = 1.0        # the factor of the step, which is halved until the loss falls
        while (after := loss(point - length * step)) > before and length > 1e-10:
            length /= 2
        if after > before or before - after < 1e-15 * max(1.0, before):
            break       # the loss has converged within rounding
        point, before = point - length * step, after
    if not LEAST < 1 / max(point[0], 1e-9) < MOST:
        raise InputError("no temperature is the best beside a bias for each class: too few labelled texts say too "
                         "little about them; fit a temperature alone, or calibrate on more texts")
    bias = point[1:] - point[1:].mean()
    return float(1 / point[0]), np.array([bias[1] - bias[0]]) if single else bias


def _derivatives(rows: NDArray[np.float64], right: NDArray[np.float64], point: NDArray[np.float64]
                 ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the gradient [1 + K] and the Hessian [1 + K, 1 + K] of the log loss, with its ridge, at (1/T, biases).

    rows: logits [n, K]. right: [n, K], 1 for the right class and 0 for the others. point: [1 + K].
    """
    n, K = rows.shape
    logits = rows * point[0] + point[1:]
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    difference, means = (p - right) / n, (p * rows).sum(axis=1)
    gradient = np.concatenate([[(difference * rows).sum()], difference.sum(axis=0) + RIDGE * point[1:]])
    hessian = np.empty((1 + K, 1 + K))
    hessian[0, 0] = ((p * rows * rows).sum(axis=1) - means * means).mean() + 1e-12     # never singular
    hessian[0, 1:] = hessian[1:, 0] = (p * (rows - means[:, None])).mean(axis=0)
    hessian[1:, 1:] = np.diag(p.mean(axis=0) + RIDGE) - p.T @ p / n
    return gradient, hessian


def two_classes(logits: np.ndarray) -> np.ndarray:
    """Return logits [n, K] unchanged, and for [n, 1] the logits (0, z) [n, 2] of the classes "no" and "yes"."""
    return np.concatenate([np.zeros_like(logits), logits], axis=1) if logits.shape[1] == 1 else logits
