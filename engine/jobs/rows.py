"""The rows of a unit, whatever the format of the file: texts or images, and the columns that are copied."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ..base.errors import InputError, shown
from ..images.sources import bytes_of_url, is_data_url
from ..model.config_checks import is_unicode
from .columns import IMAGE_FIELDS


@dataclass(frozen=True)
class ColumnNames:
    """The names of the columns to read: of the text, of the id (None for an id by position), and of others to copy."""

    text: str
    id: str | None
    keep: tuple[str, ...]
    types: dict[str, Any] = field(default_factory=dict)
    """The Arrow type of each copied column in all parts; a column without an entry keeps the type of its file."""
    images: bool = False
    """Whether the column of the text holds images: paths, or the bytes of files."""

    @property
    def kept(self) -> tuple[str, ...]:
        """The names of the columns that are copied to the output: the id, then `keep`."""
        return (*((self.id,) if self.id else ()), *self.keep)


@dataclass
class JobRows:
    """The rows of a range of a file."""

    positions: list[int] = field(default_factory=list)
    """The offset of each row's first byte in its file, or the row's number in a Parquet file."""
    texts: list[Any] = field(default_factory=list)
    """A str, or for an image a path or bytes; None for a row that cannot be encoded."""
    reasons: dict[int, str] = field(default_factory=dict)
    """Why a row cannot be encoded, by its index in these lists."""
    columns: dict[str, Any] = field(default_factory=dict)
    """The columns that are copied: lists of strings, or arrays of Arrow."""
    types: dict[str, Any] = field(default_factory=dict)
    """The types of columns that are lists, where they are not strings of Arrow."""
    images: bool = False
    """Whether the texts are images."""

    def add(self, position: int, text: Any, kept: dict[str, Any]) -> None:
        """Append a row, whose text may be of any type. kept: the values of the copied columns, by name."""
        self.add_text(position, readable_image(text) if self.images else readable(text))
        for name, value in kept.items():
            self.columns[name].append(value)

    def select(self, indices: list[int]) -> JobRows:
        """Return the rows at these indices, all of which have texts."""
        columns = {name: [column[i] for i in indices] if isinstance(column, list)
                   else column.take(np.array(indices, np.int64)) for name, column in self.columns.items()}
        return JobRows([self.positions[i] for i in indices], [self.texts[i] for i in indices], columns=columns,
                       types=self.types, images=self.images)

    def add_text(self, position: int, text: Any) -> None:
        """Append the text or the image of a row, or, as an `Unreadable`, the reason why there is none."""
        unreadable = isinstance(text, Unreadable)
        if unreadable:
            self.reasons[len(self.texts)] = str(text)
        self.positions.append(position)
        self.texts.append(None if unreadable else text)


class Unreadable(str):
    """The reason why a row has no text."""


def readable(text: Any) -> str | Unreadable:
    """Return the text of a row, of which bytes are decoded as UTF-8, or the reason why it has none."""
    if text is None:
        return Unreadable("the text is null")
    if isinstance(text, bytes):
        try:
            return text.decode()
        except UnicodeDecodeError as error:
            return Unreadable(f"the text is not UTF-8: {error}")
    if not isinstance(text, str):
        return Unreadable(f"the text is no string but {type(text).__name__}: {shown(text)}")
    if not isinstance(text, Unreadable) and not is_unicode(text):
        return Unreadable("the text is not valid Unicode")
    return text


def readable_image(image: Any) -> Any:
    """Return the image of a row as a `Path` or as the bytes of its file, or the reason why the row has none.

    image: a path or a `data:` URL, bytes, or an object with "bytes" and "path", as Hugging Face's datasets have it.
    """
    if isinstance(image, dict) and image.keys() == IMAGE_FIELDS:
        image = image["path"] if image["bytes"] is None else image["bytes"]
    if isinstance(image, (bytes, Unreadable)):
        return image
    if image is None:
        return Unreadable("the image is null")
    if not isinstance(image, str):
        return Unreadable(f"the image is no path and no bytes but {type(image).__name__}: {shown(image)}")
    if is_data_url(image):
        try:
            return bytes_of_url(image)
        except InputError as error:
            return Unreadable(str(error))
    return Path(image) if image else Unreadable("the path of the image is empty")
