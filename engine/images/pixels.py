"""Resize, crop and scale an image to the pixels of a model, as the processors of transformers that use Pillow."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..base.errors import InputError
from ..model.image_config import FILTERS, ImageConfig
from .sources import check_pixels, on_white, opened


def pixels_of(source: Any, config: ImageConfig) -> np.ndarray:
    """Return the pixels of an image (a source of `opened`): float32 [3, H, W]. Raises `InputError`.

    As in transformers, integers stay integers until the image has its size, so that they are rounded in the same way.
    """
    image = opened(source)
    if config.whitens and image.info.get("transparency") is not None:
        image = on_white(image)
    height, width = config.resized(image.height, image.width)
    if not height or not width:
        raise InputError(f"it has {image.width:,} x {image.height:,} pixels, and would be {width:,} x {height:,} as "
                         "the model needs it; cut it")
    if config.size is not None or config.shortest_edge is not None:
        check_pixels(width, height)
        image = image.resize((width, height), resample=FILTERS.index(config.resample))
    integers = np.asarray(image)
    if config.crop is not None:
        integers = _crop_middle(integers, *config.crop)
    scaled = (integers.astype(np.float64) * config.factor).astype(np.float32)
    scaled -= np.array(config.mean, np.float32)
    scaled /= np.array(config.std, np.float32)
    return np.ascontiguousarray(scaled.transpose(2, 0, 1))


def _crop_middle(image: np.ndarray, height: int, width: int) -> np.ndarray:
    """Return the middle [height, width, 3] of an image [H, W, 3], with zeros around it if it is smaller."""
    middle = np.zeros((height, width, image.shape[2]), image.dtype)
    rows_to, rows_from = _middle_slices(image.shape[0], height)
    columns_to, columns_from = _middle_slices(image.shape[1], width)
    middle[rows_to, columns_to] = image[rows_from, columns_from]
    return middle


def _middle_slices(size: int, kept: int) -> tuple[slice, slice]:
    """Return (the part of a new side of `kept` pixels that is filled, the part of the old side, `size`, that fills it).

    If the difference is odd, one row more is added above than below, or cut off below than above.
    """
    if size >= kept:
        first = (size - kept) // 2
        return slice(0, kept), slice(first, first + kept)
    first = (kept - size + 1) // 2
    return slice(first, first + size), slice(0, size)
