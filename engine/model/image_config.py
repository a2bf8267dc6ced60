"""`ImageConfig`: how an image becomes the pixels that a model reads: sizes, filter, crop and numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from ..base.arguments import is_one_of
from ..base.errors import WeightsError, shown
from .config_checks import is_bool, is_int, optional, wrong
from .json_values import JsonConfig

FILTERS = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")
"""The filters that resize an image, in the order of the numbers that Pillow gives them."""
MAX_SIDE = 4096
"""Limit on the height and the width, in pixels, to which images are resized or cropped."""
_GREATEST = 1e6     # the largest absolute value of the numbers


@dataclass(frozen=True)
class ImageConfig(JsonConfig):
    """How an image becomes the pixels of a model: it is resized, cropped, scaled and normalised, in this order."""

    called = "the settings of images"

    size: tuple[int, int] | None = None
    """The height and the width that every image gets; None if `shortest_edge` says it, or if nothing is resized."""
    shortest_edge: int | None = None
    """The shorter side that an image gets, in its own proportions; None if `size` says it, or if nothing is resized."""
    longest_edge: int | None = None
    """Limit on the longer side; an image beyond it gets a shorter side below `shortest_edge`. None for no limit."""
    resample: str = "bilinear"
    """One of `FILTERS`."""
    crop: tuple[int, int] | None = None
    """The height and the width of the middle that is kept, with zeros around a smaller image; None to keep all."""
    factor: float = 1 / 255
    """The factor by which the numbers of pixels, from 0 to 255, are multiplied."""
    mean: tuple[float, ...] = (0.0, 0.0, 0.0)
    """The numbers that are subtracted from scaled red, green and blue."""
    std: tuple[float, ...] = (1.0, 1.0, 1.0)
    """The numbers by which these differences are divided."""
    whitens: bool = False
    """Whether the pixels of the one colour that a file calls transparent become white."""

    scale: float | None = None
    """The factor of the cosine of an image's vector and a text's, for labels that are texts; None for a model of images
    alone."""
    bias: float | None = None
    """The number that is added to the scaled cosine, whose logistic function is then the probability of each label
    (SigLIP); None for the softmax over all labels (CLIP)."""

    def __post_init__(self) -> None:
        """Raise `WeightsError`, with everything that is wrong, for impossible settings."""
        problems = wrong(self, ("size", "crop"), optional(partial(_are, 2, _is_side)),
                         f"None or two numbers from 1 to {MAX_SIDE:,}")
        problems += wrong(self, ("shortest_edge", "longest_edge"), optional(_is_side),
                          f"None or a number from 1 to {MAX_SIDE:,}")
        if self.size is not None and self.shortest_edge is not None:
            problems.append("size and shortest_edge say different things of one image; one of them must be None")
        if self.longest_edge is not None and self.shortest_edge is None:
            problems.append("longest_edge needs a shortest_edge")
        problems += wrong(self, ("resample",), lambda name: is_one_of(name, FILTERS), f"one of {', '.join(FILTERS)}")
        problems += wrong(self, ("factor",), _is_number, "a number")
        problems += wrong(self, ("scale", "bias"), optional(_is_number), "a number or None")
        problems += wrong(self, ("mean", "std"), partial(_are, 3, _is_number), "three numbers")
        problems += wrong(self, ("whitens",), is_bool, "true or false")
        if not problems and not all(abs(number) >= 1 / _GREATEST for number in self.std):
            problems.append(f"std must be three numbers other than 0, not {shown(self.std)}")
        if problems:
            raise WeightsError("impossible settings of images: " + "; ".join(problems))

    def resized(self, height: int, width: int) -> tuple[int, int]:
        """Return the height and the width that an image of this height and width gets, before it is cropped."""
        if self.size is not None:
            return self.size
        if self.shortest_edge is None:
            return height, width
        short, long = min(height, width), max(height, width)        # the sides before and, below, after resizing
        shorter: int = self.shortest_edge
        longer = int(shorter * long / short)
        if self.longest_edge is not None and long / short * shorter > self.longest_edge:
            exact = self.longest_edge * short / long
            shorter = round(exact)
            longer = long if shorter == short else int(exact * long / short)
        return (shorter, longer) if height <= width else (longer, shorter)

    def describe(self) -> str:
        """Return the changes of an image for a user, such as "resized to 256 x 256 (bicubic), cropped to 224 x 224"."""
        steps = []
        if self.size is not None:
            steps.append(f"resized to {self.size[0]} x {self.size[1]} ({self.resample})")
        elif self.shortest_edge is not None:
            most = "" if self.longest_edge is None else f" and the longer one to at most {self.longest_edge}"
            steps.append(f"the shorter side resized to {self.shortest_edge}{most} ({self.resample})")
        if self.crop is not None:
            steps.append(f"cropped to {self.crop[0]} x {self.crop[1]}")
        return ", ".join(steps) or "not resized"


def _are(count: int, holds: Callable[[Any], bool], value: Any) -> bool:
    """Return whether a value is a tuple of `count` entries that pass the check `holds`."""
    return isinstance(value, tuple) and len(value) == count and all(map(holds, value))


def _is_side(value: Any) -> bool:
    """Return whether a value is a possible height or width, in pixels."""
    return is_int(value, 1, MAX_SIDE)


def _is_number(value: Any) -> bool:
    """Return whether a value is a float of a reasonable size."""
    return type(value) is float and math.isfinite(value) and abs(value) <= _GREATEST
