"""`Images`: the images of a call, which threads read ahead of the model; and functions that tell images from texts."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, overload

import numpy as np

from ..base.ahead import Pool, ahead
from ..base.arguments import warn_caller
from ..base.errors import InputError, located, shown
from ..base.stop import NEVER, Stop
from ..model.image_config import ImageConfig
from ..text.sentences import check_order
from .pixels import pixels_of
from .sources import ENDINGS, EXPECTED, checked_array, is_pillow, name_of

TOGETHER = 64
"""The most images that are read at one time, ahead of the images that are computed. For images of 224 x 224 pixels,
their token vectors take 40 MB, and their pixels as much."""


class Reading:
    """Reads the images of a call in threads beside the passes of the model. All slices of an `Images` share one."""

    def __init__(self) -> None:
        """Begin without images; `ahead` sets them."""
        self._whole: Images | None = None       # all images of the call; None outside of `ahead`
        self._pixels: Iterator[np.ndarray] | None = None        # of all images, in order; None before the first `take`
        self._stack = ExitStack()       # ends the threads

    @contextmanager
    def ahead(self, images: Images) -> Iterator[None]:
        """Read images ahead of `take` in this block, in which all of them must be taken in their order."""
        self._whole = images
        try:
            with self._stack:
                yield
        finally:
            self._whole = self._pixels = None

    def take(self, images: Images, config: ImageConfig, threads: int, stop: Stop) -> Iterator[np.ndarray]:
        """Yield the pixels of some images, as `Images.pixels` does: those read ahead in an `ahead` block."""
        if self._whole is None:
            with ExitStack() as stack:
                yield from images.read(config, threads, stop, stack)
            return
        if self._pixels is None:
            self._pixels = self._whole.read(config, threads, stop, self._stack)
        yield from islice(self._pixels, len(images))


@dataclass(frozen=True)
class Images(Sequence[Any]):
    """Some consecutive images of a call, which are read when their turn comes."""

    items: Sequence[Any]
    """The images of the caller, unread."""
    first: int = 0
    """The number of the first of them in the call."""
    reading: Reading = field(default_factory=Reading, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.items)

    @overload
    def __getitem__(self, places: int) -> Any: ...
    @overload
    def __getitem__(self, places: slice) -> Images: ...
    def __getitem__(self, places: int | slice) -> Any:
        """Return an image, or some consecutive images, which keep their numbers in the call."""
        if isinstance(places, int):
            return self.items[places]
        first, last, _ = places.indices(len(self.items))
        return replace(self, items=self.items[first:last], first=self.first + first)

    def parts(self, most: int | None = None) -> Iterator[range]:
        """Return an iterator over ranges of places; the images of a range are read at one time.

        most: the most images of a range; more than `TOGETHER`, or None, means `TOGETHER`.
        """
        count = min(TOGETHER, most or TOGETHER)
        return (range(first, min(first + count, len(self))) for first in range(0, len(self), count))

    def passing(self, places: range) -> int:
        """Return about how many bytes some images take while they are read; 0 here, and a subclass may count them."""
        return 0

    def named(self, i: int) -> AbstractContextManager[None]:
        """Return a context manager that puts the number and the path of image i in front of the errors of its block."""
        return located(f"image {self.first + i}{name_of(self.items[i])}")

    def pixels(self, config: ImageConfig, threads: int, stop: Stop = NEVER) -> Iterator[np.ndarray]:
        """Yield the pixels of all images, float32 [3, H, W] each, which several threads read.

        Raises `InputError` with the number of the first image that cannot be read, and its path.
        """
        return self.reading.take(self, config, threads, stop)

    def read(self, config: ImageConfig, threads: int, stop: Stop, stack: ExitStack) -> Iterator[np.ndarray]:
        """Return the iterator of `pixels`. Its threads end with the stack; with threads=1, the caller's thread reads
        each image when the iterator gets to it."""

        def read(i: int) -> np.ndarray:
            """Return the pixels of image i."""
            stop.check()
            with self.named(i):
                return pixels_of(self.items[i], config)

        if threads == 1 or len(self) < 2:
            return map(read, range(len(self)))
        return ahead(read, range(len(self)), TOGETHER, stack.enter_context(Pool(min(threads, len(self)))))


def is_image(value: Any, images_only: bool = False) -> bool:
    """Return whether a value is meant as one image, valid or not, and not as a list of images.

    images_only: whether the model reads no texts, so that a str is a path, and any numeric array is an image.
    """
    if isinstance(value, np.ndarray):       # four axes are several images; two may be token ids
        of_numbers = value.dtype.kind not in "OUS" and (images_only or value.ndim == 3)
        return value.ndim in (2, 3) and (value.dtype == np.uint8 or of_numbers)
    if isinstance(value, str):
        return images_only
    return isinstance(value, (os.PathLike, bytes, bytearray, memoryview)) or is_pillow(value) or _is_open_file(value)


def _is_open_file(value: Any) -> bool:
    """Return whether a value is an open file, which is refused later with advice."""
    return isinstance(value, io.IOBase)


def begins_with_image(given: Any) -> bool:
    """Return whether the first input of a call, to a model that reads texts and images, is an image.

    given: the inputs; no iterator, because it would lose its first item here.
    """
    if isinstance(given, Images) or is_image(given):
        return True
    if isinstance(given, np.ndarray) and given.ndim > 1:
        return given.ndim == 4
    return not isinstance(given, (str, Mapping)) and isinstance(given, Iterable) and is_image(next(iter(given), None))


def refuse_image_among_texts(given: Any) -> None:
    """Raise `InputError` for the first image among the inputs of a call that begins with a text."""
    for i, item in enumerate(given if isinstance(given, (list, tuple)) else []):
        if is_image(item):
            raise InputError(f"input {i} is an image{name_of(item)}, and input 0 is a text; images and texts need a "
                             "call each")


def warn_of_paths(given: Any) -> None:
    """Warn of the first text that seems to be meant as an image: the name of an image file, or an address."""
    texts = [given] if isinstance(given, str) else given if isinstance(given, (list, tuple)) else []
    for text in texts:
        if isinstance(text, str) and text.lower().endswith(ENDINGS) and (" " not in text or os.path.exists(text)):
            warn_caller(f"{shown(text)} is read as a text, because this model reads texts and images; for the image "
                        "give its path as a pathlib.Path", UserWarning)
            return


def read_images(given: Any, images_only: bool, name: str = "images", first: int = 0) -> tuple[Images, bool]:
    """Return (images of a call, whether the caller gave a single one and not a list).

    images_only: whether the model reads no texts, so that a str is a path, and any array of numbers an image. name: the
    caller's own argument. first: the number of the first image of a list. Raises `InputError` for anything but images,
    such as a text among them; damaged files are found later, when they are read.
    """
    if isinstance(given, Images):
        return given, False
    if is_image(given, images_only):
        return Images([_check_image(0, given, images_only)]), True
    expected = f"{name} must be an image or a list of images"
    check_order(given, expected)
    if isinstance(given, (str, Mapping)) or not isinstance(given, Iterable):
        raise InputError(f"{expected}, not {type(given).__name__} {shown(given, 60)}")
    return Images([_check_image(i, item, images_only) for i, item in enumerate(given, first)], first), False


def _check_image(i: int, item: Any, images_only: bool) -> Any:
    """Return an image of the caller, unread; raises `InputError`, with its number i, for any other value."""
    with located(f"image {i}"):
        if isinstance(item, np.ndarray):
            return checked_array(item)
        if _is_open_file(item):
            raise InputError(f"an image is {EXPECTED}, and not an open file; give file.read()")
        if not is_image(item, images_only):
            raise InputError(f"an image is {EXPECTED}, not {type(item).__name__} {shown(item, 60)}"
                             f"{_TEXT if isinstance(item, str) else ''}")
        return item


_TEXT = ", which is a text here; images and texts need a call each, and the path of an image is a pathlib.Path"
