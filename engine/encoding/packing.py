"""Pack the caller's arrays or lists into a `Batch`, and return token vectors in the caller's form.

An array [B,T] and a list of B sequences are both read as one array that holds all their tokens in order. Then the
padding, if there is any, is removed. Positions are counted before the removal, so that the position of a token is its
column in the caller's array.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np

from ..backends.batch import Batch, lengths_of
from ..base.errors import InputError, UnsupportedError, shown
from ..model.config import ModelConfig


@dataclass(frozen=True, eq=False)
class InputShape:
    """The shape of the caller's input, padding included, and which of its tokens are real."""

    starts: np.ndarray
    """int64 [B+1]: sequence b consists of the tokens starts[b] to starts[b+1] - 1."""
    shape: tuple[int, int] | None
    """(B, T) for an array; None for a list of sequences."""
    real: np.ndarray | None = None
    """bool [B*T]: True for each token that is not padding; None when all tokens are real."""

    @property
    def cu_seqlens(self) -> np.ndarray:
        """Return the boundaries of the sequences, counted in real tokens only: int32 [B+1]."""
        return (self.starts if self.real is None else _before(self.real)[self.starts]).astype(np.int32)

    def pack(self, values: np.ndarray, dtype: type[np.generic] = np.int32) -> np.ndarray:
        """Return the rows of `values` that belong to real tokens, as a C-contiguous array."""
        return np.ascontiguousarray(values if self.real is None else values[self.real], dtype)

    def unpack(self, tokens: np.ndarray) -> np.ndarray | list[np.ndarray]:
        """Return token vectors [N, D], or numbers [N], in the caller's form.

        An array has the shape [B, T, D] or [B, T], and a list holds views [T_i, D] or [T_i]; padding has zeros.
        """
        if self.real is not None:
            padded = np.zeros((len(self.real), *tokens.shape[1:]), tokens.dtype)
            padded[self.real] = tokens
            tokens = padded
        if self.shape is None:
            return [tokens[start:end] for start, end in pairwise(self.starts.tolist())]
        return tokens.reshape(*self.shape, *tokens.shape[1:])

    def unpack_weights(self, weights: np.ndarray) -> np.ndarray | list[np.ndarray]:
        """Return the attention weights of each sequence in the caller's form.

        weights: [T,T] of each sequence, one after the other, in a flat array; T counts real tokens. An array has the
        shape [B,T,T], and a list holds arrays [T_i,T_i]; both have zeros for padding.
        """
        sizes = lengths_of(self.cu_seqlens).astype(np.int64)
        ends = np.cumsum(sizes * sizes)
        blocks = [weights[end - n * n : end].reshape(n, n)
                  for n, end in zip(sizes.tolist(), ends.tolist(), strict=True)]
        if self.real is not None:
            for b, (start, end) in enumerate(pairwise(self.starts.tolist())):
                places = np.flatnonzero(self.real[start:end])
                padded = np.zeros((end - start, end - start), weights.dtype)
                padded[np.ix_(places, places)] = blocks[b]
                blocks[b] = padded
        if self.shape is None:
            return blocks
        B, T = self.shape
        return np.stack(blocks) if B else np.zeros((0, T, T), weights.dtype)

    def place(self, token: int) -> tuple[int, int]:
        """Return (sequence, position in the sequence) of a token, both counted from 0."""
        sequence = int(np.searchsorted(self.starts, token, side="right")) - 1
        return sequence, token - int(self.starts[sequence])


_MASK_VALUES = "1 or True for a real token and 0 or False for padding"
_MASK = f"an array [B,T] with {_MASK_VALUES}"

_Check: TypeAlias = Callable[[InputShape, Any], None]
_MOST_TOKENS = 2**31 - 1
"""Limit on the tokens of a call: `Batch.cu_seqlens` counts them in int32."""
_SLAB = 2**16
"""How many tokens are looked at together before their number is known to be allowed."""


def pack(config: ModelConfig, input_ids: Any = None, attention_mask: Any = None, token_type_ids: Any = None,
         position_ids: Any = None, *, inputs_embeds: Any = None) -> tuple[Batch, InputShape]:
    """Check the arguments of `Engine.forward`, which describes them, and pack their real tokens.

    The returned form converts token vectors back to the caller's form. Raises `InputError`, and `UnsupportedError` for
    a sequence of which the model would compute sparse attention.
    """
    # `position_ids` may number tokens as they like, so they leave no limit to the length.
    limited = config.max_positions > 0 and position_ids is None
    check = partial(_refuse_long, config, attention_mask, inputs_embeds is None) if limited else None
    ids, embeds, form = _read_tokens(config, input_ids, inputs_embeds, check)
    if attention_mask is not None:
        form = _with_mask(form, attention_mask)
    types = np.zeros(form.starts[-1], np.int64)
    if token_type_ids is not None:
        types = _read_companion("token_type_ids", token_type_ids, form)
        _check_below(config.token_types, "token type", types, form)
    if ids is not None:
        _check_below(config.vocab_size, "token id", ids, form)
    if config.attention_bias is not None or any(kind.window is not None for kind in config.attention_kinds):
        _refuse_holes(form)
    positions = _positions(config, form, ids, position_ids)
    if config.dense_tokens:
        _refuse_sparse(config.dense_tokens, form)
    return Batch(cu_seqlens=form.cu_seqlens, input_ids=None if ids is None else form.pack(ids),
                 inputs_embeds=None if embeds is None else form.pack(embeds, np.float32),
                 position_ids=form.pack(positions), token_type_ids=form.pack(types)), form


def _read_tokens(config: ModelConfig, input_ids: Any, inputs_embeds: Any, check: _Check | None
                 ) -> tuple[np.ndarray | None, np.ndarray | None, InputShape]:
    """Return (ids [tokens] or None, embeddings [tokens, D] or None, form); exactly one of the first two is None."""
    if (input_ids is None) == (inputs_embeds is None):
        raise InputError(f"pass either input_ids or inputs_embeds; got {'neither' if input_ids is None else 'both'}")
    if input_ids is None:
        embeds, form = _read("inputs_embeds", inputs_embeds, config.table_width, check)
        return None, embeds, form
    if config.vocab_size == 0:
        raise InputError("this model has no word table to look input_ids up in; pass inputs_embeds")
    ids, form = _read("input_ids", input_ids, check=check)
    return ids, None, form


def _read(name: str, value: Any, width: int | None = None, check: _Check | None = None
          ) -> tuple[np.ndarray, InputShape]:
    """Return all tokens as one array, ids [tokens] or, if `width` is given, vectors [tokens, width]; and the form.

    `check` is called with the form and the sequences before anything is copied: an array that takes 8 bytes can claim
    to have 2^40 tokens.
    """
    if isinstance(value, (list, tuple)):
        rows = [_array(f"{name}[{b}]", row, rank=1, width=width) for b, row in enumerate(value)]
        starts = np.zeros(len(rows) + 1, np.int64)
        np.cumsum([len(row) for row in rows], out=starts[1:])
        form = InputShape(starts, shape=None)
        _refuse_many(name, form)
        if check:
            check(form, rows)
        empty = np.zeros((0,) if width is None else (0, width), np.int64 if width is None else np.float32)
        with _refusing_overflow(name):
            return np.concatenate([empty, *rows], dtype=empty.dtype, casting="unsafe"), form
    array = _array(name, value, rank=2, width=width)
    B, T = array.shape[:2]
    form = InputShape(np.arange(B + 1, dtype=np.int64) * T, (B, T))
    _refuse_many(name, form)
    if check:
        check(form, array)
    flat = array.reshape(B * T, *array.shape[2:])
    if width is None:
        return flat.astype(np.int64, copy=False), form
    with _refusing_overflow(name):
        return flat.astype(np.float32, copy=False), form


def _refuse_many(name: str, form: InputShape) -> None:
    if form.starts[-1] > _MOST_TOKENS:
        raise InputError(f"{name} must have at most {_MOST_TOKENS:,} tokens in one call, padding included, not "
                         f"{form.starts[-1]:,}; split the batch")


@contextmanager
def _refusing_overflow(name: str) -> Iterator[None]:
    try:
        with np.errstate(over="raise"):
            yield
    except FloatingPointError:
        raise InputError(f"{name} must have numbers that float32 can hold, up to 3.4e38") from None


def _refuse_long(config: ModelConfig, attention_mask: Any, is_ids: bool, form: InputShape,
                 rows: Sequence[np.ndarray] | np.ndarray) -> None:
    """Raise `InputError` for a sequence that is too long for any positions, before its tokens are copied.

    `_positions` finds the other sequences that are too long, such as those of a list with a mask.
    """
    most = config.max_positions - config.position_offset
    counted = is_ids and config.position_offset > 0     # as in RoBERTa, a position counts the tokens that are no pads
    if form.shape is None and attention_mask is not None:
        return  # the mask of a list is a list; `_positions` looks at it
    mask = None if attention_mask is None else _as_array("attention_mask", attention_mask, _MASK)
    if mask is not None and (mask.shape != form.shape or mask.dtype.kind not in "biu"):
        return  # `_with_mask` refuses it
    if form.shape is not None and form.shape[1] <= most:
        return
    # A position table that is read by column has no row for column `most`, so no real token may stand there or later.
    # Otherwise the real tokens are counted, and there may be `most` of them anywhere.
    by_column = config.position_table and not counted
    for b, row in enumerate(rows):
        allowed = 0 if by_column else most      # how many more tokens there may be
        for start in range(most if by_column else 0, len(row), _SLAB):
            columns = slice(start, start + _SLAB)
            real = np.ones(len(row[columns]), bool) if mask is None else mask[b, columns] != 0
            if counted:
                real &= row[columns] != config.pad_token_id
            places = np.flatnonzero(real)
            if len(places) > allowed:
                raise _too_long(config, b, start + int(places[allowed]))
            allowed -= len(places)


def _too_long(config: ModelConfig, sequence: int, token: int) -> InputError:
    limit = "this model's position table" if config.position_table else "this model"
    return InputError(f"sequence {sequence} is too long: token {token} (counted from 0) is beyond the "
                      f"{config.longest_sequence} tokens that {limit} allows; shorten it")


def _array(name: str, value: Any, rank: int, width: int | None) -> np.ndarray:
    """Return `value` as an integer array of that rank, or, if `width` is given, as a float array with one more axis.

    The additional axis has the size `width`.
    """
    axes = ["B", "T"][-rank:] + ([] if width is None else [str(width)])
    expected = f"{'an integer' if width is None else 'a float'} array [{','.join(axes)}]"
    array = _as_array(name, value, expected)
    fits = array.ndim == len(axes) and (width is None or array.shape[-1] == width)
    # NumPy reads an empty list as a float array. The dtype of an array without elements is not checked.
    if not fits or (array.size and array.dtype.kind not in ("iu" if width is None else "f")):
        hint = "or a list of sequences of any lengths" if rank == 2 else "as one of the sequences of a list"
        raise InputError(f"{name} must be {expected}, {hint}, not {_found(name, value, array)}")
    return array


def _found(name: str, value: Any, array: np.ndarray) -> str:
    """Say what came in place of an array, and what to do."""
    if array.dtype.kind in "US":
        return f"{shown(value, 60)}; encode reads texts, and forward(**tokenize(texts)) their token ids"
    if array.ndim == 0 and name.endswith("]"):
        outer = name.partition("[")[0]      # such as "input_ids" of "input_ids[0]"
        return f"the number {shown(value, 60)}; {outer} of one sequence goes into a list of its own: {outer}=[[...]]"
    return f"{array.dtype} {list(array.shape)}"


def _as_array(name: str, value: Any, expected: str) -> np.ndarray:
    if isinstance(value, np.ma.MaskedArray):
        raise InputError(f"{name} must be {expected}, not a MaskedArray, because its own mask would be lost; pass a "
                         f"plain array, for example {name}.filled(0)")
    try:
        return np.asarray(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"{name} must be {expected}, not {shown(value, 60)}") from error


def _with_mask(form: InputShape, attention_mask: Any) -> InputShape:
    """Return the form with the tokens that the mask, of the same form as the tokens, marks as real."""
    if form.shape is None:
        mask = _read_list_mask(form, attention_mask)
    else:
        mask = _as_array("attention_mask", attention_mask, _MASK)
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
    rows = [_as_array(f"attention_mask[{b}]", row, f"[T] with {_MASK_VALUES}") for b, row in enumerate(attention_mask)]
    if any(row.ndim != 1 for row in rows) or [len(row) for row in rows] != lengths_of(form.starts).tolist():
        shapes = ", ".join(str(list(row.shape)) for row in rows[:8])
        raise InputError(f"attention_mask must be {expected}: {_lengths(form)}; its rows have the shapes {shapes}")
    # Empty rows are left out, because an empty list is a float array to NumPy.
    return np.concatenate([np.zeros(0, bool), *(row for row in rows if row.size)])


def _read_companion(name: str, value: Any, form: InputShape) -> np.ndarray:
    """Return one number for each token, int64 [tokens], from an argument of the same form as the tokens."""

    def check(array: InputShape, _: object) -> None:
        _check_same(name, array, form)

    return _read(name, value, check=check)[0]


def _check_same(name: str, array: InputShape, form: InputShape) -> None:
    if (array.shape is None) != (form.shape is None):
        expected = "a list of sequences" if form.shape is None else "an array [B,T]"
        raise InputError(f"{name} must be {expected}, as the tokens are")
    if array.shape != form.shape:
        raise InputError(f"{name} must have the shape of the tokens, {form.shape}, not {array.shape}")
    if not np.array_equal(array.starts, form.starts):
        raise InputError(f"{name} must have the lengths of the tokens, {_lengths(form)}, not {_lengths(array)}")


def _lengths(form: InputShape) -> str:
    lengths = lengths_of(form.starts)
    return f"{len(lengths)} sequences of {', '.join(map(str, lengths[:8]))}{' ...' if len(lengths) > 8 else ''}"


def _positions(config: ModelConfig, form: InputShape, ids: np.ndarray | None, position_ids: Any) -> np.ndarray:
    """Return each token's row in the position table, checked: the caller's, or counted as transformers counts it."""
    if position_ids is not None:
        positions = _read_companion("position_ids", position_ids, form)
        _check_below(config.max_positions, "position id", positions, form)
        return positions
    if config.max_positions == 0:
        return np.zeros(form.starts[-1], np.int64)
    if config.position_offset and ids is not None:
        # RoBERTa numbers the tokens that are no padding from `position_offset`; padding has the row before that.
        counted = ids != config.pad_token_id
        before = _before(counted)
        positions = counted * (before[1:] - _spread(before[form.starts[:-1]], form)) + config.position_offset - 1
    else:
        # Rotary positions count from the first real token, so that padding on the left does not change any bit.
        firsts = form.starts[:-1] if config.position_table else _real_bounds(form)[0]
        positions = np.arange(form.starts[-1]) - _spread(firsts, form) + config.position_offset
    wrong = _first_wrong(config.max_positions, positions, form)
    if wrong is not None:
        raise _too_long(config, *form.place(wrong))
    return positions


def _real_bounds(form: InputShape) -> tuple[np.ndarray, np.ndarray]:
    """Return the index of each sequence's first real token and the index after its last one: int64 [B] each.

    They are equal for a sequence without real tokens.
    """
    if form.real is None:
        return form.starts[:-1], form.starts[1:]
    before = _before(form.real)[form.starts]        # [B+1]: the real tokens before each sequence, then all of them
    places = np.append(np.flatnonzero(form.real), 0)        # of real tokens, and a 0 for indices that nothing reads
    has_real = before[1:] > before[:-1]
    return (np.where(has_real, places[before[:-1]], form.starts[:-1]),
            np.where(has_real, places[before[1:] - 1] + 1, form.starts[:-1]))


def _refuse_holes(form: InputShape) -> None:
    """Raise `InputError` for padding between real tokens: windows and distances would have to count it."""
    first, last = _real_bounds(form)
    holes = last - first != lengths_of(form.cu_seqlens)
    if holes.any():
        raise InputError(f"sequence {int(holes.argmax())} has padding between real tokens, which would change the "
                         "distances in this model's attention; pad at the ends only, or pass a list of sequences")


def _refuse_sparse(most: int, form: InputShape) -> None:
    """Raise `UnsupportedError` for a sequence with more real tokens than sparse attention reads all of."""
    lengths = lengths_of(form.cu_seqlens)
    if (longer := np.flatnonzero(lengths > most)).size:
        b = int(longer[0])
        raise UnsupportedError(f"sequence {b} has {lengths[b]} tokens, and from {most + 1} tokens on this model "
                               "computes block_sparse attention, which the engine lacks; shorten it, or cut texts to "
                               f"{most} tokens with engine.with_text(max_seq_length={most})")


def _before(flags: np.ndarray) -> np.ndarray:
    """Return, for each index from 0 to n, the number of flags set before it: int64 [n+1]."""
    counts = np.zeros(len(flags) + 1, np.int64)
    np.cumsum(flags, out=counts[1:])
    return counts


def _spread(values: np.ndarray, form: InputShape) -> np.ndarray:
    """Repeat the value of each sequence [B] for all its tokens."""
    return np.repeat(values, lengths_of(form.starts))


def _check_below(limit: int, what: str, numbers: np.ndarray, form: InputShape) -> None:
    """Raise `InputError` unless the numbers of all real tokens are from 0 to limit - 1."""
    wrong = _first_wrong(limit, numbers, form)
    if wrong is not None:
        sequence, place = form.place(wrong)
        allowed = f"this model's are 0 to {limit - 1}" if limit else "this model has none; leave them out"
        raise InputError(f"token {place} of sequence {sequence} has {what} {numbers[wrong]}; {allowed}")


def _first_wrong(limit: int, numbers: np.ndarray, form: InputShape) -> int | None:
    """Return the first real token whose number is not from 0 to limit - 1, or None; padding may hold any number."""
    if numbers.size == 0 or (numbers.min() >= 0 and numbers.max() < limit):
        return None
    wrong = (numbers < 0) | (numbers >= limit)
    if form.real is not None:
        wrong &= form.real
    return int(wrong.argmax()) if wrong.any() else None
