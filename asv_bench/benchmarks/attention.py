"""Define the kinds of attention to measure, the libraries that run them, and the measurement of memory."""

import ctypes
import functools
import math

import numpy as np

from engine import BackendUnavailable
from engine.base.cpus import usable_cpus
from engine.ops import alibi_slopes, attention

H, WINDOW, SOFTCAP = 12, 128, 20.0
THREADS = min(2, usable_cpus())
KINDS = ("full", "causal", "window 128", "gqa", "bias", "mask", "softcap", "score_mod ALiBi")


class Case:
    """One kind of attention over T queries and T keys of width d, with the inputs for every library."""

    def __init__(self, kind, T, d):
        rng = np.random.default_rng(0)
        self.kind, self.T = kind, T
        self.G = H // 4 if kind == "gqa" else H
        self.q = rng.standard_normal((1, H, T, d), np.float32)
        self.k, self.v = rng.standard_normal((2, 1, self.G, T, d), np.float32)
        self.slopes = alibi_slopes(H)
        self.bias = rng.standard_normal((1, 1, T, T), np.float32) if kind == "bias" else None
        self.mask = rng.random((1, 1, T, T), np.float32) < 0.9 if kind == "mask" else None

    def pairs(self):
        """Return the number of (query, key) pairs that the causal limit or the window leaves."""
        T, side = self.T, min(WINDOW // 2, self.T - 1)
        if self.kind == "causal":
            return T * (T + 1) // 2
        return T * (2 * side + 1) - side * (side + 1) if self.kind == "window 128" else T * T

    def flops(self):
        """Return the operations: 2*d for each score and 2*d for its value; softmax is not counted."""
        return 4 * self.q.shape[3] * H * self.pairs()

    def allowed(self):
        """Return the causal limit, the window or the mask as a bool array [T,T], or None."""
        key = np.arange(self.T)
        if self.kind == "causal":
            return key <= key[:, None]
        if self.kind == "window 128":
            return abs(key - key[:, None]) <= WINDOW // 2
        return self.mask


def alibi(score, b, h, q_index, kv_index, slopes):
    return score - slopes[h] * abs(q_index - kv_index)


def with_engine(case):
    options = {
        "causal": {"causal": True},
        "window 128": {"window": (WINDOW // 2, WINDOW // 2)},
        "bias": {"bias": case.bias},
        "mask": {"mask": case.mask},
        "softcap": {"softcap": SOFTCAP},
        "score_mod ALiBi": {"score_mod": functools.partial(alibi, slopes=case.slopes)},
    }.get(case.kind, {})
    return functools.partial(attention, case.q, case.k, case.v, threads=THREADS, **options)


def with_numpy(case):
    """Return the plain formula in NumPy, which computes all scores at once."""
    def attend():
        k, v = (np.repeat(x, H // case.G, axis=1) for x in (case.k, case.v))
        scores = case.q @ k.swapaxes(2, 3)
        scores /= math.sqrt(case.q.shape[3])
        if case.kind == "softcap":
            scores = SOFTCAP * np.tanh(scores / SOFTCAP)
        if case.kind == "bias":
            scores += case.bias
        if case.kind == "score_mod ALiBi":
            key = np.arange(case.T, dtype=np.float32)
            scores -= case.slopes[:, None, None] * abs(key - key[:, None])
        if (allowed := case.allowed()) is not None:
            scores = np.where(allowed, scores, -np.inf)
        scores -= scores.max(axis=3, keepdims=True)
        np.exp(scores, out=scores)
        scores /= scores.sum(axis=3, keepdims=True)
        return scores @ v

    return attend


def numpy_bytes(T):
    """Return the bytes of the plain formula's scores."""
    return 4 * H * T * T


def torch_tensors(case):
    import torch

    torch.set_num_threads(THREADS)
    torch.set_grad_enabled(False)
    return [torch.from_numpy(x) for x in (case.q, case.k, case.v)]


def with_torch(case):
    """Return torch's scaled_dot_product_attention, which takes a window and a bias as arrays."""
    from torch import from_numpy
    from torch.nn.functional import scaled_dot_product_attention

    if case.kind in ("softcap", "score_mod ALiBi"):
        raise NotImplementedError(f"scaled_dot_product_attention has no {case.kind}")
    mask = case.bias if case.kind == "bias" else None if case.kind == "causal" else case.allowed()
    return functools.partial(
        scaled_dot_product_attention, *torch_tensors(case), attn_mask=None if mask is None else from_numpy(mask),
        is_causal=case.kind == "causal", enable_gqa=case.kind == "gqa",
    )  # fmt: skip


def with_flex(case):
    """Return torch's flex_attention, not compiled; masks and changes of the scores are a score_mod."""
    import torch
    from torch.nn.attention.flex_attention import flex_attention

    q, k, v = torch_tensors(case)
    bias, mask, slopes = (None if x is None else torch.from_numpy(x) for x in (case.bias, case.mask, case.slopes))
    score_mod = {
        "causal": lambda score, b, h, t, s: torch.where(s <= t, score, -math.inf),
        "window 128": lambda score, b, h, t, s: torch.where(abs(s - t) <= WINDOW // 2, score, -math.inf),
        "bias": lambda score, b, h, t, s: score + bias[0, 0, t, s],
        "mask": lambda score, b, h, t, s: torch.where(mask[0, 0, t, s], score, -math.inf),
        "softcap": lambda score, b, h, t, s: SOFTCAP * torch.tanh(score / SOFTCAP),
        "score_mod ALiBi": lambda score, b, h, t, s: score - slopes[h] * abs(t - s),
    }.get(case.kind)
    return functools.partial(flex_attention, q, k, v, score_mod=score_mod, enable_gqa=case.kind == "gqa")


LIBRARIES = {"engine": with_engine, "numpy": with_numpy, "torch SDPA": with_torch, "torch flex_attention": with_flex}


def prepare(library, kind, T, d):
    """Return the case, and a function without arguments that runs it; NotImplementedError if the library cannot."""
    try:
        LIBRARIES[library](Case(kind, 16, d))()  # starts threads and compiles code before anything is measured
    except (ModuleNotFoundError, BackendUnavailable) as error:
        raise NotImplementedError(f"{library}: {error}") from None
    case = Case(kind, T, d)
    return case, LIBRARIES[library](case)


def extra_memory(work):
    """Return the peak memory in bytes that `work` adds to the process, without its result. Linux with glibc only."""
    ctypes.CDLL(None).malloc_trim(0)  # returns memory that the warm-up freed to the system
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # resets the peak memory
    before = memory("VmRSS")
    result = work()
    return max(0, memory("VmHWM") - before - result.nbytes)


def memory(field):
    """Return a field of /proc/self/status, in bytes."""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(field))
