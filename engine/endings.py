"""End and fill the token ids of a text, for models that read an end token or padding, such as CLIP and SigLIP."""

from __future__ import annotations

import numpy as np

from .config import TextConfig
from .errors import WeightsError


def finish(text: TextConfig, ids: np.ndarray, limit: int) -> np.ndarray:
    """Return the ids [T] up to the first `text.end_id`, and filled with `text.fill_id` to `limit` tokens.

    Raises `WeightsError` for ids without the end token, because the model then has no vector for the text.
    """
    if text.end_id is not None:
        ends = np.flatnonzero(ids == text.end_id)
        if not ends.size:
            raise WeightsError(f"the model's tokenizer gives a text no token {text.end_id}, which ends a text by the "
                               "model's config.json")
        ids = ids[: ends[0] + 1]
    return ids if text.fill_id is None else resized(ids, max(limit, len(ids)), text.fill_id)


def resized(ids: np.ndarray, size: int, value: int) -> np.ndarray:
    """Return the first `size` numbers, followed by `value` as often as numbers are missing."""
    return np.pad(ids[:size], (0, max(0, size - len(ids))), constant_values=value)
