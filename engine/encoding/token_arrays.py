"""Check the arrays or lists of `Engine.forward`, and read each as one array of all its tokens; packing.py calls this.

An array [B,T] and a list of B sequences are both read as one array that holds all their tokens in order, padding
included.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from itertools import accumulate
from typing import Any, TypeAlias

import numpy as np

from ..backends.batch import lengths_of
from ..base.arguments import as_array
from ..base.errors import InputError, shown
from ..model.config import ModelConfig
from .input_shape import InputShape

_MASK_VALUES = "1 or True for a real token and 0 or False for padding"
_MASK = f"an array [B,T] with {_MASK_VALUES}"

Check: TypeAlias = Callable[[InputShape, Any], None]
"""Gets the form of the tokens, and the sequences as the caller gave them; raises an error for sequences that are not
allowed, before anything is copied."""
_MOST_TOKENS = 2**31 - 1
"""The most tokens of a call: `Batch.cu_seqlens` counts them in int32."""
_SLAB = 2**16
"""How many tokens `refuse_long` looks at together, because a sequence may claim to have far too many for the memory."""


def read_tokens(config: ModelConfig, input_ids: Any, inputs_embeds: Any, check: Check | None
                ) -> tuple[np.ndarray | None, np.ndarray | None, InputShape]:
    """Return (ids, int64 [tokens], or None; embeddings, float32 [tokens, D], or None; form); one of the two is None.

    input_ids, inputs_embeds: the arguments of the caller, one of which must be None. check: None for no check.
    """
    if (input_ids is None) == (inputs_embeds is None):
        raise InputError(f"pass either input_ids or inputs_embeds; got {'neither' if input_ids is None else 'both'}")
    if input_ids is None:
        embeds, form = _read("inputs_embeds", inputs_embeds, config.table_width, check)
        return None, embeds, form
    if config.vocab_size == 0:
        raise InputError("this model has no word table to look input_ids up in; pass inputs_embeds")
    ids, form = _read("input_ids", input_ids, check=check)
    return ids, None, form


def _read(name: str, value: Any, width: int | None = None, check: Check | None = None
          ) -> tuple[np.ndarray, InputShape]:
    """Return (all tokens as one array, form): ids [tokens] or, if `width` is given, vectors [tokens, width].

    `check` is called with the form and the sequences before anything is copied, because an array of 8 bytes can claim
    to have 2^40 tokens (by strides of 0).
    """
    if isinstance(value, (list, tuple)):
        rows: Any = [_array(f"{name}[{b}]", row, rank=1, width=width) for b, row in enumerate(value)]
        form = InputShape(np.array([0, *accumulate(map(len, rows))], np.int64), shape=None)
    else:
        rows = _array(name, value, rank=2, width=width)
        B, T = rows.shape[:2]
        form = InputShape(np.arange(B + 1, dtype=np.int64) * T, (B, T))
    if form.starts[-1] > _MOST_TOKENS:
        raise InputError(f"{name} must have at most {_MOST_TOKENS:,} tokens in one call, padding included, not "
                         f"{form.starts[-1]:,}; split the batch")
    if check:
        check(form, rows)
    empty = np.zeros(0, np.int64) if width is None else np.zeros((0, width), np.float32)
    with nullcontext() if width is None else _refusing_overflow(name):      # ids cannot overflow
        if form.shape is None:
            return np.concatenate([empty, *rows], dtype=empty.dtype, casting="unsafe"), form
        return rows.reshape(form.starts[-1], *rows.shape[2:]).astype(empty.dtype, copy=False), form


@contextmanager
def _refusing_overflow(name: str) -> Iterator[None]:
    """Raise `InputError` if a number is too large for float32 when it is converted in the `with` block."""
    try:
        with np.errstate(over="raise"):
            yield
    except FloatingPointError:
        raise InputError(f"{name} must have numbers that float32 can hold, up to 3.4e38") from None


def refuse_long(config: ModelConfig, attention_mask: Any, is_ids: bool, form: InputShape,
                 rows: Sequence[np.ndarray] | np.ndarray) -> None:
    """Raise `InputError` for a sequence with more tokens than the model has positions, before its tokens are copied.

    is_ids: whether the tokens are ids, and not vectors. rows: the sequences as the caller gave them. Some sequences
    that are too long pass, such as those of a list with a mask; `pack` refuses these.
    """
    most = config.max_positions - config.position_offset
    counted = is_ids and config.position_offset > 0     # positions count the tokens that are not padding (RoBERTa)
    if form.shape is None and attention_mask is not None:
        return  # the mask of a list is a list, which `pack` reads
    mask = None if attention_mask is None else _unmasked("attention_mask", attention_mask, _MASK)
    if mask is not None and (mask.shape != form.shape or mask.dtype.kind not in "biu"):
        return  # `with_mask` refuses it
    if (max(map(len, rows), default=0) if form.shape is None else form.shape[1]) <= most:
        return
    # If the position of a token is its column, the table has no row for column `most`, so no real token may stand there
    # or later. Otherwise the real tokens are counted, and there may be `most` of them anywhere.
    by_column = config.position_table and not counted
    for b, row in enumerate(rows):
        allowed = 0 if by_column else most      # how many more real tokens there may be in the columns that follow
        for start in range(most if by_column else 0, len(row), _SLAB):
            columns = slice(start, start + _SLAB)
            real = np.ones(len(row[columns]), bool) if mask is None else mask[b, columns] != 0
            if counted:
                real &= row[columns] != config.pad_token_id
            places = np.flatnonzero(real)
            if len(places) > allowed:
                raise too_long(config, b, start + int(places[allowed]))
            allowed -= len(places)


def too_long(config: ModelConfig, sequence: int, token: int) -> InputError:
    """Return the error for a sequence (its number) whose token (its number) is past the last position of the model."""
    limit = "this model's position table" if config.position_table else "this model"
    return InputError(f"sequence {sequence} is too long: token {token} (counted from 0) is beyond the "
                      f"{config.longest_sequence} tokens that {limit} allows; shorten it")


def _array(name: str, value: Any, rank: int, width: int | None) -> np.ndarray:
    """Return `value` as an integer array, rank 1 for [T] or 2 for [B,T]; or as a float array with one more axis.

    width: the size of that axis; None for integers. name: the argument, for messages. Raises `InputError`.
    """
    axes = ["B", "T"][-rank:] + ([] if width is None else [str(width)])
    expected = f"{'an integer' if width is None else 'a float'} array [{','.join(axes)}]"
    array = _unmasked(name, value, expected)
    fits = array.ndim == len(axes) and (width is None or array.shape[-1] == width)
    # NumPy reads an empty list as a float array. The dtype of an array without elements is not checked.
    if not fits or (array.size and array.dtype.kind not in ("iu" if width is None else "f")):
        hint = "or a list of sequences of any lengths" if rank == 2 else "as one of the sequences of a list"
        raise InputError(f"{name} must be {expected}, {hint}, not {_describe_wrong(name, value, array)}")
    return array


def _describe_wrong(name: str, value: Any, array: np.ndarray) -> str:
    """Return the end of a message: the value that came in place of an array, and what to do."""
    if array.dtype.kind in "US":
        return f"{shown(value, 60)}; encode reads texts, and forward(**tokenize(texts)) their token ids"
    if array.ndim == 0 and name.endswith("]"):
        outer = name.partition("[")[0]      # such as "input_ids" of "input_ids[0]"
        return f"the number {shown(value, 60)}; {outer} of one sequence goes into a list of its own: {outer}=[[...]]"
    return f"{array.dtype} {list(array.shape)}"


def _unmasked(name: str, value: Any, expected: str) -> np.ndarray:
    """Return an argument as an array; raises `InputError` for a MaskedArray. expected: the array that it must be."""
    if isinstance(value, np.ma.MaskedArray):
        raise InputError(f"{name} must be {expected}, not a MaskedArray, because its own mask would be lost; pass a "
                         f"plain array, for example {name}.filled(0)")
    return as_array(value, f"{name} must be {expected}")


def with_mask(form: InputShape, attention_mask: Any) -> InputShape:
    """Return the form in which the tokens that the mask marks are real; raises `InputError` for a wrong mask."""
    if form.shape is None:
        mask = _read_list_mask(form, attention_mask)
    else:
        mask = _unmasked("attention_mask", attention_mask, _MASK)
        if mask.shape != form.shape:
            raise InputError(f"attention_mask must have the shape of the tokens, {list(form.shape)}, not "
                             f"{list(mask.shape)}")
    if mask.size and mask.dtype.kind not in "biu":
        raise InputError(f"attention_mask must be integers or bool, {_MASK_VALUES}, not {mask.dtype}: a float mask may "
                         "hold numbers to add to the scores, where 0 marks a real token. For a 0/1 mask, pass "
                         "mask.astype(bool)")
    if mask.size and (mask.min() < 0 or mask.max() > 1):
        raise InputError(f"attention_mask must have {_MASK_VALUES}; it has values from {mask.min()} to {mask.max()}")
    return form if mask.all() else InputShape(form.starts, form.shape, mask.reshape(-1).astype(bool))


def _read_list_mask(form: InputShape, attention_mask: Any) -> np.ndarray:
    """Return the mask of a list of sequences as one array [tokens], after checking the lengths of the rows."""
    expected = "a list of sequences, as the tokens are"
    if not isinstance(attention_mask, (list, tuple)):
        raise InputError(f"attention_mask must be {expected}, not {type(attention_mask).__name__}")
    rows = [_unmasked(f"attention_mask[{b}]", row, f"[T] with {_MASK_VALUES}") for b, row in enumerate(attention_mask)]
    if any(row.ndim != 1 for row in rows) or [len(row) for row in rows] != lengths_of(form.starts).tolist():
        shapes = ", ".join(str(list(row.shape)) for row in rows[:8])
        raise InputError(f"attention_mask must be {expected}: {_lengths(form)}; its rows have the shapes {shapes}")
    # Leave empty rows out, because NumPy reads an empty list as a float array.
    return np.concatenate([np.zeros(0, bool), *(row for row in rows if row.size)])


def read_companion(name: str, value: Any, form: InputShape) -> np.ndarray:
    """Return one number for each token, int64 [tokens], from an argument (name) in the same form as the tokens."""

    def check(given: InputShape, _: object) -> None:
        _check_same(name, given, form)

    return _read(name, value, check=check)[0]


def _check_same(name: str, given: InputShape, form: InputShape) -> None:
    """Raise `InputError` unless an argument, which has the form `given`, has the form of the tokens."""
    if (given.shape is None) != (form.shape is None):
        expected = "a list of sequences" if form.shape is None else "an array [B,T]"
        raise InputError(f"{name} must be {expected}, as the tokens are")
    if given.shape != form.shape:
        raise InputError(f"{name} must have the shape of the tokens, {form.shape}, not {given.shape}")
    if len(given.starts) != len(form.starts) or (given.starts != form.starts).any():
        raise InputError(f"{name} must have the lengths of the tokens, {_lengths(form)}, not {_lengths(given)}")


def _lengths(form: InputShape) -> str:
    """Describe the number and the lengths of sequences, for a message."""
    lengths = lengths_of(form.starts)
    return f"{len(lengths)} sequences of {', '.join(map(str, lengths[:8]))}{' ...' if len(lengths) > 8 else ''}"
