"""Read values from a mapped file one after another, for the readers of GGUF and of CTranslate2."""

from __future__ import annotations

from mmap import mmap

from .reading import FormatError


class Cursor:
    """A position in a file. Its methods raise `FormatError` where the file ends too early."""

    def __init__(self, data: mmap):
        self.data, self.position = data, 0

    def skip(self, size: int) -> int:
        """Return the position of the next `size` bytes, and go on after them."""
        start = self.position
        if size > len(self.data) - start:
            raise FormatError("the file is cut short")
        self.position = start + size
        return start

    def integer(self, size: int) -> int:
        """Return the next `size` bytes as a little-endian integer without a sign."""
        start = self.skip(size)
        return int.from_bytes(self.data[start:start + size], "little")
