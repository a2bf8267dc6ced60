"""Check the arguments of all operations: dtypes, shapes in letters, and the backend that runs the call."""

from __future__ import annotations

import math
import operator
from functools import lru_cache
from typing import Any

import numpy as np

from ..backends import choose_backend
from ..backends.numba_cuda.shared_array import adopt, lies_on_gpu, place
from ..backends.ops_interface import Ops
from ..base.arguments import positive_int_or_none
from ..base.cpus import choose_threads
from ..base.errors import InputError, UnsupportedError, shown
from ..model.bits import FASTEST, PORTABLE, check_bits
from ..model.config import ACTIVATIONS

_NEVER_ZERO = frozenset("HGdDKF")
"""The letters of sizes that must be at least 1: heads H and key heads G, the widths d, D and F, and inputs K."""


class Arguments:
    """Checks the arrays of one call in order: all have one dtype, and each letter stands for one size.

    They are NumPy arrays, or all lie on the GPU, for the backend that computes there.
    """

    def __init__(self, backend: str | None = None) -> None:
        self.sizes: dict[str, int] = {}
        self.dtype: np.dtype | str | None = None
        self._backend = backend
        self._first = ""        # the name of the first array, which sets the dtype
        self._gpu: Any = None   # the device, if the arrays lie there
        self._leading: tuple[int, ...] | None = None        # the axes that "..." stands for, once they are known

    def floats(self, name: str, value: Any) -> Any:
        """Check and return a float array of any shape, with the dtype and the place of the arrays before it."""
        if lies_on_gpu(value):
            return self._on_gpu(name, value)
        self._check_host(name, value)
        if self.dtype is None and value.dtype in (np.float32, np.float64):
            self.dtype, self._first = value.dtype, name
        if self.dtype is None or value.dtype != self.dtype:
            expected = "float32" if self.dtype is None else f"{self.dtype}, as {self._first} is"
            raise InputError(f"{name} must be {expected}, not {value.dtype}; convert it with "
                             f"{name}.astype(np.{self.dtype or 'float32'})")
        # The fields of packed records can be unaligned, and no backend reads unaligned numbers.
        return np.array(value) if not value.flags.aligned else np.asarray(value)

    def on_same_device(self, array: np.ndarray) -> Any:
        """Return a float array that the call itself has made, copied to the GPU if its arguments lie there."""
        return array if self._gpu is None else place(self._gpu, array)

    def mask(self, name: str, value: Any) -> Any:
        """Check a mask of attention, a bool array, which must lie where the arrays before it do, and return it."""
        if lies_on_gpu(value):
            return self._on_gpu(name, value, ("bool",))
        if self._gpu is not None:
            self._check_host(name, value)
        plain = isinstance(value, np.ndarray) and not isinstance(value, np.ma.MaskedArray)
        if plain and value.dtype == bool:
            return np.asarray(value)
        what = value.dtype if plain else type(value).__name__
        raise InputError(f"{name} must be a bool array, True where a query may look at a key, not {what}; convert it "
                         f"with np.asarray({name}, bool), or, if its numbers are to be added to the scores, pass it as "
                         "bias")

    def _check_host(self, name: str, value: Any) -> None:
        """Raise `InputError` unless a value is a plain NumPy array, and the arrays before it are."""
        if isinstance(value, np.ma.MaskedArray):
            raise InputError(f"{name} must be a plain array, not a MaskedArray, because its own mask would be lost; "
                             f"pass {name}.data")
        if self._gpu is not None:
            raise InputError(f"{name} must lie on the GPU, as {self._first} does, and it is a {type(value).__name__} "
                             "on the host; copy it to the GPU, or pass only NumPy arrays")
        if not isinstance(value, np.ndarray):
            raise InputError(f"{name} must be a NumPy array, not {type(value).__name__}; convert it with "
                             f"np.asarray({name}, np.float32)")

    def _on_gpu(self, name: str, value: Any, dtypes: tuple[str, ...] = ("float32", "bfloat16")) -> Any:
        """Check an array on the GPU, and return it as a `SharedArray`; dtypes: the names that are allowed."""
        if self._backend != "cuda":
            raise InputError(f"{name} lies on a GPU, which backend='cuda' alone reads; pass backend='cuda', or copy it "
                             f"to the host, such as {name}.cpu().numpy()")
        if self.dtype is not None and self._gpu is None:
            raise InputError(f"{name} must be a NumPy array, as {self._first} is, and it lies on the GPU; pass all "
                             "arrays there, or none")
        if self._gpu is None:
            ops: Any = _ops("cuda", None, FASTEST)
            self._gpu = ops.device
        array = adopt(self._gpu, name, value, dtypes)
        if self.dtype is None and array.dtype in ("float32", "bfloat16"):
            self.dtype, self._first = array.dtype, name
        if array.dtype not in (self.dtype, "bool"):
            raise InputError(f"{name} must be {self.dtype}, as {self._first} is, not {array.dtype}; convert it on the "
                             "GPU")
        return array

    def array(self, name: str, value: Any, shape: str) -> Any:
        """Return a checked float array whose shape is given as "B T D", or as "... D" for any leading axes.

        The first array with a letter sets the size of the letter, and the first array with "..." sets the leading axes.
        """
        array = self.floats(name, value)
        letters = shape.removeprefix("... ").split()
        extra = array.ndim - len(letters)
        trailing, leading = array.shape[max(extra, 0) :], array.shape[: max(extra, 0)]
        any_axes = shape.startswith("... ")
        # Each letter has its size from an earlier array, if there was one, and the leading axes are those of before.
        fits = extra >= 0 and all(self.sizes.get(letter, n) == n for letter, n in zip(letters, trailing, strict=True))
        fits = fits and (self._leading in (None, leading) if any_axes else extra == 0)
        if not fits or any(n == 0 for letter, n in zip(letters, trailing, strict=True) if letter in _NEVER_ZERO):
            raise InputError(f"{name} must have the shape {self._describe(letters, any_axes)}, not {list(array.shape)}")
        self.sizes.update(zip(letters, trailing, strict=True))
        if any_axes:
            self._leading = leading
        return array

    def optional(self, name: str, value: Any, shape: str) -> Any:
        """Return None for None; check any other value as `array` does."""
        return None if value is None else self.array(name, value, shape)

    def ops(self, threads: int | None, bits: str) -> Ops:
        """Return the operations of the chosen backend, after checking that it computes in the dtype of the arrays."""
        name = "auto" if self._backend is None else self._backend
        if not isinstance(name, str):
            raise InputError(f"backend must be None or the name of a backend, not {shown(name)}")
        threads = positive_int_or_none("threads", threads)
        if self.dtype == np.float64 and name != "reference":
            raise UnsupportedError(f"float64, which {self._first} is, works with backend='reference' only; for other "
                                   "backends convert all arrays with astype(np.float32)")
        return _ops(name, threads, check_bits(bits))

    def _describe(self, letters: list[str], any_axes: bool) -> str:
        """Format the shape in letters, with the sizes that are already set."""
        text = f"[{','.join(['...'] * any_axes + letters)}]"
        facts = [f"{letter}={self.sizes[letter]}" for letter in letters if letter in self.sizes]
        if any_axes and self._leading is not None:
            facts.insert(0, f"...={','.join(map(str, self._leading)) or 'nothing'}")
        facts += [f"{letter} at least 1" for letter in letters if letter in _NEVER_ZERO and letter not in self.sizes]
        return f"{text} with {' and '.join(facts)}" if facts else text


def contiguous(array: Any) -> Any:
    """Return an array of NumPy or on the GPU whose elements lie in order, copied if they do not."""
    return np.ascontiguousarray(array) if isinstance(array, np.ndarray) else array.contiguous()


def broadcast(array: Any, shape: tuple[int, ...]) -> Any:
    """Return a view of an array of NumPy or on the GPU; raises `ValueError` if it does not broadcast to the shape."""
    return np.broadcast_to(array, shape) if isinstance(array, np.ndarray) else array.broadcast_to(shape)


@lru_cache(maxsize=64, typed=True)
def _ops(backend: str, threads: int | None, bits: str) -> Ops:
    """Return the operations of a backend; they are cached, because asking for the CPUs takes longer than a small one.

    typed=True of the cache keeps True, which is no number of threads, apart from 1.
    """
    return choose_backend(backend, bits).ops(choose_threads(threads), portable=bits == PORTABLE)


def number(name: str, value: Any, least: float = -math.inf) -> float:
    """Return `value` as a finite float that is at least `least`."""
    try:
        result = float(value)
    except (TypeError, ValueError, OverflowError):
        result = math.nan       # refused below, as a number that is not finite
    if not math.isfinite(result) or result < least:
        limit = "" if least == -math.inf else f" of at least {least:g}"
        raise InputError(f"{name} must be a finite number{limit}, not {shown(value)}")
    return result


def integer(name: str, value: Any, least: int, most: int | None = None) -> int:
    """Return `value`, a Python or NumPy integer, as an int that is at least `least`, and at most `most` if given."""
    try:
        result = operator.index(value)
    except TypeError:
        result = least - 1      # refused below, as an integer that is too small
    if result < least:
        raise InputError(f"{name} must be an int of at least {least}, not {shown(value)}")
    if most is not None and result > most:
        raise InputError(f"{name} must be at most {most:,}, not {shown(value)}")
    return result


def read_array(name: str, value: Any, expected: str) -> np.ndarray:
    """Return a number or numbers as an array; `expected` says which ones, for the error."""
    if isinstance(value, np.ma.MaskedArray):
        raise InputError(f"{name} must be {expected}, not a MaskedArray, because its own mask would be lost; pass "
                         f"{name}.data")
    try:
        return np.asarray(value)
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"{name} must be {expected}, not {shown(value)}") from None


def integers(name: str, value: Any, size: int, least: int, most: int) -> np.ndarray:
    """Return int64 [B], one integer from `least` to `most` for each of B=`size` sequences.

    `value` holds one integer for each sequence, or one integer for all of them.
    """
    expected = f"an int, or integers [B] with B={size}"
    array = read_array(name, value, expected)
    array = np.full(size, array) if array.ndim == 0 else array
    # NumPy reads an empty list as a float array. The dtype of an array without elements is not checked.
    if array.shape != (size,) or (array.size and array.dtype.kind not in "iu"):
        raise InputError(f"{name} must be {expected}, not {array.dtype} {list(np.shape(value))}")
    wrong = (array < least) | (array > most)
    if wrong.any():
        b = int(wrong.argmax())
        raise InputError(f"{name} must be from {least} to {most}; it is {array[b]} for sequence {b}")
    return array.astype(np.int64)


def activation_name(value: Any) -> str:
    """Return `value` after checking that it is one of `ACTIVATIONS`."""
    if not isinstance(value, str) or value not in ACTIVATIONS:
        raise InputError(f"activation must be one of {', '.join(ACTIVATIONS)}, not {shown(value)}")
    return value
