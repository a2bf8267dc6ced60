"""Read the images of requests, in base64 as clients of OpenAI, Jina, Cohere and Hugging Face send them.

The routes call it for fields that may have images; a worker decodes the pixels later, one image a step.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import msgspec

from ..base.errors import InputError, shown
from ..images import Images, size_of
from .forms import AnyModel, check_not_empty, texts_or_ids
from .refusals import Refusal
from .settings import MAX_IMAGE_PIXELS, MAX_IMAGES

_PIXEL = 12
"""The bytes of a pixel while an image is read: Pillow has 4 in each of the image, its turned copy and its RGB copy."""
_DATA_URL = re.compile(r"data:(?P<kind>[^;,]*)(?P<options>[^,]*),", re.IGNORECASE)      # its start, before the data
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_ADVICE = "send the image itself, as data:image/png;base64,..."


class Address(msgspec.Struct):
    """The object {"url": ...} of OpenAI's clients; the URL must hold the image itself. Other fields are ignored."""

    url: str


class Item(msgspec.Struct, forbid_unknown_fields=True):
    """An input that says what it is: {"image": ...} or {"text": ...} of Jina, {"image_url": {"url": ...}} of OpenAI."""

    type: str | None = None
    image: str | None = None
    image_url: str | Address | None = None
    text: str | None = None


Inputs: TypeAlias = str | Item | list[str | int | list[int] | Item]
"""A text, texts, the token ids of a text, or those of several; or an image, or several."""


@dataclass(frozen=True)
class SentImages(Images):
    """The images of a request, which a worker decodes one by one; an error names the image by its place in the body."""

    places: Sequence[str] = ()
    """The place of each image of the request, such as "input[3]"; those of this part begin at `first`."""

    def parts(self, most: int | None = None) -> Iterator[range]:
        """Yield a range of one image each, whatever `most` is: decoding one may take as long as a step may."""
        return super().parts(1)

    def passing(self, places: range) -> int:
        """Return the memory that decoding the largest image of a range takes; raises `Refusal` for too many pixels."""
        pixels = 0
        for i in places:
            place = self.places[self.first + i]
            with self.named(i):
                width, height = size_of(self.items[i])
                if width * height > MAX_IMAGE_PIXELS:
                    raise Refusal("too_large", f"{place}: it has {width:,} x {height:,} pixels, and at most "
                                  f"{MAX_IMAGE_PIXELS:,} are read; make it smaller", place)
                pixels = max(pixels, width * height)
        return _PIXEL * pixels

    @contextmanager
    def named(self, i: int) -> Iterator[None]:
        """Turn an `InputError` of the block into a `Refusal` with the place of image `i` of this part."""
        try:
            yield
        except InputError as error:
            place = self.places[self.first + i]
            raise Refusal("wrong", f"{place}: {error}", place) from None


def reads_images(model: AnyModel) -> bool:
    """Return whether a model reads images, beside texts or alone."""
    return getattr(model, "reads_images", False)


def inputs_of(name: str, value: Any, model: AnyModel) -> tuple[Any, bool]:
    """Return `images_or_texts` of a field, and refuse an empty text; raises `Refusal`."""
    inputs, single = images_or_texts(name, value, model)
    if not isinstance(inputs, SentImages):
        check_not_empty(name, inputs)
    return inputs, single


def images_or_texts(name: str, value: Any, model: AnyModel) -> tuple[Any, bool]:
    """Return the inputs of a field, and whether it has one input, not a list; raises `Refusal`.

    The inputs are `SentImages`, or a list of texts or of lists of token ids. A str is an image where the model reads no
    texts, and where it is a data URL.
    """
    single = isinstance(value, (str, Item))
    items = [value] if single else value
    if reads_images(model) or any(isinstance(item, Item) for item in items):
        places = [name] if single else [f"{name}[{i}]" for i in range(len(items))]
        images: list[bytes] = []
        texts: list[Any] = []
        for item, place in zip(items, places, strict=True):
            image = _image_of(item, place, model)
            if image is None:
                texts.append(item.text if isinstance(item, Item) else item)
            else:
                images.append(image)
            if images and texts:
                raise Refusal("wrong", f"{place}: {name} has texts and images; send a request for each", place)
            if len(images) > MAX_IMAGES:
                raise Refusal("too_large", f"{name} has more than {MAX_IMAGES} images; send several requests", name)
        if images:
            return SentImages(images, places=places), single
        value = texts[0] if single else texts
    return texts_or_ids(name, value)


def sent_images(name: str, values: Sequence[str], model: AnyModel) -> SentImages:
    """Return the images of a field that has images alone, each in base64; raises `Refusal`."""
    inputs, _ = inputs_of(name, [Item(image=value) for value in values], model)
    assert isinstance(inputs, SentImages)
    return inputs


def _image_of(item: Any, place: str, model: AnyModel) -> bytes | None:
    """Return the bytes of the image file that an input has; None for a text or token ids. Raises `Refusal`."""
    reads_no_texts = reads_images(model) and model.text is None
    data = item     # from here on: the image in base64, or something else for an input that is no image
    if isinstance(item, Item):
        values = [value for value in (item.image, item.image_url, item.text) if value is not None]
        if len(values) != 1:
            raise Refusal("wrong", f'{place} must be {{"image": ...}}, {{"image_url": {{"url": ...}}}} or '
                          '{"text": ...}, one of them', place)
        if item.text is not None and item.type is not None:
            raise Refusal("wrong", f"{place} is a part, which may be one text or belong to one; send the text "
                          'itself, or {"content": [parts]}', place)
        data = values[0].url if isinstance(values[0], Address) else values[0]
        data = None if item.text is not None else data
    elif isinstance(item, str) and not reads_no_texts and _DATA_URL.match(item) is None:
        data = None
    if not isinstance(data, str):
        if reads_no_texts:
            raise Refusal("unsupported", f"{place}: this model reads images, and no texts; {_ADVICE}", place)
        return None
    if not reads_images(model):
        raise Refusal("unsupported", f"{place}: this model reads texts, and no images", place)
    return _decoded(data, place)


def _decoded(data: str, place: str) -> bytes:
    """Return the bytes of an image from base64, which may stand in a data URL; raises `Refusal`."""
    begin = 0
    if (header := _DATA_URL.match(data)) is not None:
        begin = header.end()
        if not header["options"].lower().endswith(";base64") or not header["kind"].lower().startswith("image/"):
            start = shown(header[0], 60)
            raise Refusal("wrong", f"{place}: {start} is no start of an image in base64; {_ADVICE}", place)
    elif _ADDRESS.match(data):
        raise Refusal("wrong", f"{place}: {shown(data, 60)} is an address, and nothing is fetched; {_ADVICE}", place)
    if begin == len(data):
        raise Refusal("empty", f"{place} is empty; {_ADVICE}", place)
    try:
        return base64.b64decode(data[begin:] if begin else data, validate=True)
    except ValueError as error:
        raise Refusal("wrong", f"{place} is no base64: {error}; {_ADVICE}", place) from None
