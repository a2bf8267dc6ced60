"""Open the source of an image as an image of Pillow in red, green and blue, as transformers' `load_image` does.

The size is checked before a pixel is decoded, and only the formats of `FORMATS` are read, each by its own decoder.
Messages here begin with "it", because `Images.named` puts the name of the image in front of them.
"""

from __future__ import annotations

import base64
import glob
import io
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

import numpy as np

from ..base.errors import FileMissing, InputError, UnsupportedError, shown
from ..base.install import require_images
from ..files.reading import FormatError, open_given, refuse_pointer, shown_path

FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF")
"""Pillow's names of the formats that are read."""
ENDINGS = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff")
"""The ends of the names of files in these formats."""
MAX_PIXELS = 89_478_485
"""The most pixels of an image, before and after it is resized; Pillow warns of larger ones."""
MAX_BYTES = 2**28
"""The most bytes of an image file, because decoders read some formats whole."""
EXPECTED = "a path, the bytes of a file, an image of Pillow, or uint8 [H,W], [H,W,3] or [H,W,4]"
_START = 64
"""The number of first bytes of a file that tell a pointer of Git LFS from an image."""
_ADDRESS = re.compile("[a-z][a-z0-9+.-]+:/")        # one slash is enough, because a Path joins two
_ANIMATED = ("GIF", "PNG", "WEBP", "TIFF")
"""The formats whose files may have several images of equal rank; further images of a JPEG file are previews."""


def is_pillow(value: Any) -> bool:
    """Return whether a value is an image of Pillow, without importing Pillow."""
    pillow = sys.modules.get("PIL.Image")
    return pillow is not None and isinstance(value, pillow.Image)


def bytes_of_url(url: str) -> bytes:
    """Return the bytes in a `data:` URL in base64, such as "data:image/png;base64,..."; raises `InputError`."""
    kind, comma, data = url.partition(",")
    if not comma or not kind.endswith(";base64"):
        raise InputError("the data: URL has no ;base64, in front of its data, and no other coding is read")
    try:
        return base64.b64decode(data, validate=True)
    except ValueError as error:
        raise InputError(f"the data: URL is no base64: {error}") from None


def name_of(source: Any) -> str:
    """Return " (PATH)", which messages have behind the number of an image; "" for an image without a path."""
    is_path = isinstance(source, (str, os.PathLike)) and not is_data_url(source)
    return f" ({shown_path(source)})" if is_path else ""


def is_data_url(source: Any) -> bool:
    """Return whether a source is a `data:` URL, which holds the bytes of a file."""
    return isinstance(source, str) and source.startswith("data:")


def opened(source: Any) -> Any:
    """Return the image of a source, as an image of Pillow in mode RGB, rotated as its EXIF data say.

    source: a path, the bytes of a file, a `data:` URL, an image of Pillow, or an array. Raises `InputError` for one
    that cannot be read, and `FileMissing` for a path without a file.
    """
    pillow = require_images("PIL.Image")
    if isinstance(source, np.ndarray):
        return pillow.fromarray(np.ascontiguousarray(checked_array(source))).convert("RGB")
    if is_pillow(source):
        with _readable(getattr(source, "format", None) or "an image of Pillow"):
            return _as_rgb(source)
    with _file_of(source) as file:
        return _decode(pillow, file)


def checked_array(array: np.ndarray) -> np.ndarray:
    """Return the array itself; raises `InputError` unless it is uint8 [H,W], [H,W,3] or [H,W,4], and not too large."""
    channels = array.shape[2] if array.ndim == 3 else 1
    if array.dtype != np.uint8 or array.ndim not in (2, 3) or channels not in (1, 3, 4) or (
            array.ndim == 3 and channels == 1):
        raise InputError(f"an image is {EXPECTED}, not {array.dtype} {list(array.shape)}; forward(pixel_values=...) "
                         "takes pixels that are resized and normalised already")
    _check_size(array.shape[1], array.shape[0])
    return array


def check_pixels(width: int, height: int) -> None:
    """Raise `InputError` for an image with more pixels than `MAX_PIXELS`."""
    if width * height > MAX_PIXELS:
        raise InputError(f"it has {width:,} x {height:,} pixels, and at most {MAX_PIXELS:,} are read; make it smaller")


def _check_size(width: int, height: int) -> None:
    """Raise `InputError` for an image without pixels, or with too many."""
    if not width or not height:
        raise InputError(f"it has {width:,} x {height:,} pixels, and an image has at least one")
    check_pixels(width, height)


@contextmanager
def _file_of(source: Any) -> Iterator[IO[bytes]]:
    """Open a path, bytes or a `data:` URL as a file in a `with` block; raises `InputError` and `FileMissing`."""
    if is_data_url(source):
        source = bytes_of_url(source)
    if isinstance(source, (bytes, bytearray, memoryview)):
        _check_bytes(memoryview(source).nbytes)
        yield io.BytesIO(source)
        return
    if not isinstance(source, (str, os.PathLike)):
        raise InputError(f"an image is {EXPECTED}, not {type(source).__name__} {shown(source, 60)}")
    try:
        file = open_given(source)
    except FileNotFoundError:
        raise FileMissing(_missing(os.fsdecode(source))) from None
    except FormatError as error:
        if os.path.isdir(source):
            raise InputError(f"it is a folder; give its files, such as {_listing(source, '*.jpg')}") from None
        raise InputError(f"{error}; give the path of an image") from None
    with file:
        _check_bytes(os.fstat(file.fileno()).st_size)
        try:
            refuse_pointer(os.pread(file.fileno(), _START, 0))
        except FormatError as error:
            raise InputError(str(error)) from None
        yield file


def _missing(path: str) -> str:
    """Return the message for a path without a file, with advice by the form of the path."""
    if _ADDRESS.match(path):
        return "an address is never fetched; download it, and give the path or the bytes of the file"
    if glob.has_magic(path):
        return f"there is no such file; for the files of a pattern give {_listing(*os.path.split(path))}"
    if path.startswith("~"):
        return "there is no such file; give pathlib.Path(...).expanduser(), as ~ is the home folder for shells alone"
    return "there is no such file; give the path of an image"


def _listing(folder: str | os.PathLike[str], pattern: str) -> str:
    """Return Python code, for a message, that lists the files of a pattern in a folder."""
    return f"sorted(pathlib.Path({os.fsdecode(folder) or '.'!r}).glob({pattern!r}))"


def _check_bytes(count: int) -> None:
    """Raise `InputError` for a file with no bytes or with too many."""
    if not count:
        raise InputError("the file is empty")
    if count > MAX_BYTES:
        raise InputError(f"the file has {count:,} bytes, and at most {MAX_BYTES:,} are read")


def _decode(pillow: Any, file: IO[bytes]) -> Any:
    """Return the image of an open file in mode RGB. pillow: the module PIL.Image."""
    image = _open(pillow, file)
    with image, _readable(str(image.format)):
        return _as_rgb(image)


def size_of(source: Any) -> tuple[int, int]:
    """Return (width, height) of an image in a file or in bytes, by its header; raises the errors of `opened`."""
    with _file_of(source) as file, _open(require_images("PIL.Image"), file) as image:
        _check_size(*image.size)
        width, height = image.size
        return width, height


def _open(pillow: Any, file: IO[bytes]) -> Any:
    """Return the image of an open file, of which only the header has been read."""
    with _readable("an image"):
        try:
            return pillow.open(file, formats=FORMATS)
        except pillow.UnidentifiedImageError:
            raise InputError(f"its first bytes are those of none of the formats {', '.join(FORMATS)}; convert it to "
                             "PNG") from None
        except (pillow.DecompressionBombError, pillow.DecompressionBombWarning):
            raise InputError(f"it has more than {MAX_PIXELS:,} pixels, which are too many to read; make it smaller"
                             ) from None


def _as_rgb(image: Any) -> Any:
    """Check an image of Pillow, decode its pixels, and return it in mode RGB, rotated as its EXIF data say."""
    _check_size(*image.size)
    _refuse_frames(image)
    _refuse_depth(image)
    files, operations = require_images("PIL.ImageFile"), require_images("PIL.ImageOps")
    if files.LOAD_TRUNCATED_IMAGES:
        raise InputError("PIL.ImageFile.LOAD_TRUNCATED_IMAGES is on, so that a damaged file would be read in silence; "
                         "set it to False")
    image.load()
    image = operations.exif_transpose(image)
    if image.mode == "P" and isinstance(image.info.get("transparency"), bytes):
        # Remove the transparency, because `convert` would warn that it is lost, which is intended.
        image = image.copy()
        del image.info["transparency"]
    return image.convert("RGB")


def on_white(image: Any) -> Any:
    """Return an image in mode RGB in which the pixels of its transparent colour are white."""
    pillow = require_images("PIL.Image")
    white = pillow.new("RGBA", image.size, (255, 255, 255, 255))
    with _readable("an image with a transparent colour"):
        return pillow.alpha_composite(white, image.convert("RGBA")).convert("RGB")


def _refuse_frames(image: Any) -> None:
    """Raise `InputError` for an animated image, or for one with several pages."""
    if image.format in _ANIMATED and getattr(image, "is_animated", False):
        raise InputError(f"it has {image.n_frames:,} images, and one is read; choose one, such as the first: "
                               "image.seek(0), and then image.copy() of Pillow")


def _refuse_depth(image: Any) -> None:
    """Raise `InputError` for an image with more than 8 bits a channel, because Pillow would drop some of them."""
    tiles = [text for tile in getattr(image, "tile", ()) for text in _texts(tile)]
    if image.mode[0] in "IF" or any(";16" in text or ";32" in text for text in tiles):
        raise InputError(f"it has more than 8 bits a channel (mode {image.mode}), and 8 are read; divide its "
                               "numbers as the model needs it, and save it with 8 bits")


def _texts(value: Any) -> Iterator[str]:
    """Yield the texts in tuples inside each other, such as the description of a tile."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, tuple):
        for inner in value:
            yield from _texts(inner)


@contextmanager
def _readable(kind: str) -> Iterator[None]:
    """Turn the errors of Pillow in a `with` block, for a damaged file, into `InputError`; kind: the file's format."""
    try:
        yield
    except (InputError, UnsupportedError, MemoryError):
        raise
    except Exception as error:      # decoders raise errors of many classes, such as SyntaxError and struct.error
        reason = str(error).rstrip(".") or type(error).__name__
        raise InputError(f"it cannot be read as {kind}: {shown(reason, 200)[1:-1]}; the file is damaged") from None
