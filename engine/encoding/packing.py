"""Check the caller's arrays or lists, and pack their real tokens, with their positions, into a `Batch`.

Positions are counted before the padding is removed, so that the position of a token is its column in the caller's
array. `Engine.forward` and the encoders call this.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import accumulate
from typing import Any

import numpy as np

from ..backends.batch import Batch, lengths_of
from ..base.errors import InputError, UnsupportedError
from ..model.config import ModelConfig
from .input_shape import InputShape, counts_before
from .token_arrays import read_companion, read_tokens, refuse_long, too_long, with_mask


def pack(config: ModelConfig, input_ids: Any = None, attention_mask: Any = None, token_type_ids: Any = None,
         position_ids: Any = None, *, inputs_embeds: Any = None) -> tuple[Batch, InputShape]:
    """Check the arguments of `Engine.forward`, which describes them, and pack their real tokens.

    The `InputShape` converts token vectors back to the caller's form. Raises `InputError`, and `UnsupportedError` for a
    sequence so long that the model would compute sparse attention.
    """
    # With `position_ids`, which may repeat, a sequence may be longer than the position table.
    limited = config.max_positions > 0 and position_ids is None
    check = partial(refuse_long, config, attention_mask, inputs_embeds is None) if limited else None
    ids, embeds, form = read_tokens(config, input_ids, inputs_embeds, check)
    if attention_mask is not None:
        form = with_mask(form, attention_mask)
    types = None if token_type_ids is None else read_companion("token_type_ids", token_type_ids, form)
    return _checked_batch(config, form, ids, embeds, types, position_ids), form


def pack_rows(config: ModelConfig, input_ids: Sequence[np.ndarray],
              token_type_ids: Sequence[np.ndarray] | None = None) -> tuple[Batch, InputShape]:
    """Pack the checked sequences of a tokenizer, int32 [T_i] each; token types that are None are zeros."""
    form = InputShape(np.array([0, *accumulate(map(len, input_ids))], np.int64), shape=None)
    if config.max_positions > 0:
        refuse_long(config, attention_mask=None, is_ids=True, form=form, rows=input_ids)
    types = None if token_type_ids is None else np.concatenate([_NO_IDS, *token_type_ids])
    ids = np.concatenate([_NO_IDS, *input_ids])
    return _checked_batch(config, form, ids, embeds=None, types=types, position_ids=None), form


def pack_embeds(config: ModelConfig, embeds: Sequence[np.ndarray]) -> tuple[Batch, InputShape]:
    """Pack sequences of vectors, which the model reads in place of rows of its word table: float32 [T_i, D] each, at
    least one sequence."""
    form = InputShape(np.array([0, *accumulate(map(len, embeds))], np.int64), shape=None)
    return _checked_batch(config, form, ids=None, embeds=np.concatenate(embeds), types=None, position_ids=None), form


_NO_IDS = np.zeros(0, np.int32)


def _checked_batch(config: ModelConfig, form: InputShape, ids: np.ndarray | None, embeds: np.ndarray | None,
                   types: np.ndarray | None, position_ids: Any) -> Batch:
    """Check the numbers of the real tokens, and return these tokens as a batch.

    ids, types: [tokens]. embeds: [tokens, D]. All of them have padding, too. position_ids: the argument of the caller.
    """
    if types is None:
        types = np.zeros(form.starts[-1], np.int32)
    else:
        _check_below(config.token_types, "token type", types, form)
    if ids is not None:
        _check_below(config.vocab_size, "token id", ids, form)
    if form.real is not None and (config.attention_bias is not None
                                  or any(kind.window is not None for kind in config.attention_kinds)):
        _refuse_holes(form)
    positions = _position_rows(config, form, ids, position_ids)
    if config.dense_tokens:
        _refuse_sparse(config.dense_tokens, form)
    return Batch(cu_seqlens=form.cu_seqlens, input_ids=None if ids is None else form.pack(ids),
                 inputs_embeds=None if embeds is None else form.pack(embeds, np.float32),
                 position_ids=form.pack(positions), token_type_ids=form.pack(types))


def _position_rows(config: ModelConfig, form: InputShape, ids: np.ndarray | None, position_ids: Any) -> np.ndarray:
    """Return each token's row in the position table, [tokens], checked: the caller's, or counted as in transformers."""
    if position_ids is not None:
        positions = read_companion("position_ids", position_ids, form)
        _check_below(config.max_positions, "position id", positions, form)
        return positions
    if config.max_positions == 0:
        return np.zeros(form.starts[-1], np.int64)
    if config.position_offset and ids is not None:
        # RoBERTa numbers the tokens that are no padding from `position_offset` on; padding has the row before that.
        counted = ids != config.pad_token_id
        before = counts_before(counted)
        in_sequence = before[1:] - form.for_tokens(before[form.starts[:-1]])    # counted tokens up to each token
        positions = counted * in_sequence + config.position_offset - 1
    else:
        # Rotary positions count from the first real token, so that padding on the left does not change any bit.
        firsts = form.starts[:-1] if config.position_table else form.real_bounds()[0]
        positions = np.arange(form.starts[-1]) - form.for_tokens(firsts) + config.position_offset
    wrong = _first_wrong(config.max_positions, positions, form)
    if wrong is not None:
        raise too_long(config, *form.place(wrong))
    return positions


def _refuse_holes(form: InputShape) -> None:
    """Raise `InputError` for padding between real tokens, because windows and distances in attention count it."""
    first, last = form.real_bounds()
    holes = last - first != lengths_of(form.cu_seqlens)
    if holes.any():
        raise InputError(f"sequence {int(holes.argmax())} has padding between real tokens, which would change the "
                         "distances in this model's attention; pad at the ends only, or pass a list of sequences")


def _refuse_sparse(most: int, form: InputShape) -> None:
    """Raise `UnsupportedError` for a sequence with more than `most` real tokens, which needs sparse attention."""
    lengths = lengths_of(form.cu_seqlens)
    if (longer := np.flatnonzero(lengths > most)).size:
        b = int(longer[0])
        raise UnsupportedError(f"sequence {b} has {lengths[b]} tokens, and from {most + 1} tokens on this model "
                               "computes block_sparse attention, which the engine lacks; shorten it, or cut texts to "
                               f"{most} tokens with engine.with_text(max_seq_length={most})")


def _check_below(limit: int, what: str, numbers: np.ndarray, form: InputShape) -> None:
    """Raise `InputError` unless the numbers (what: their name) of all real tokens are from 0 to limit - 1."""
    wrong = _first_wrong(limit, numbers, form)
    if wrong is not None:
        sequence, place = form.place(wrong)
        allowed = f"this model's are 0 to {limit - 1}" if limit else "this model has none; leave them out"
        raise InputError(f"token {place} of sequence {sequence} has {what} {numbers[wrong]}; {allowed}")


def _first_wrong(limit: int, numbers: np.ndarray, form: InputShape) -> int | None:
    """Return the index of the first real token whose number is not from 0 to limit - 1, or None; padding may have any.

    numbers: int32 or int64 [tokens].
    """
    unsigned = numbers.view(np.uint32 if numbers.itemsize == 4 else np.uint64)      # negative numbers become huge
    if numbers.size == 0 or unsigned.max() < limit:
        return None
    wrong = (numbers < 0) | (numbers >= limit)
    if form.real is not None:
        wrong &= form.real
    return int(wrong.argmax()) if wrong.any() else None
