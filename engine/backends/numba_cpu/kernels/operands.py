"""Find the place of a row of operands, which lies alone or in a strip of several rows; operands.pxi explains it."""

from __future__ import annotations

from ..compiler.compiling import inline
from ..compiler.structs import Size


@inline
def start_of_row(row: Size, strip: Size, stride: Size, line: Size) -> Size:
    """Return the place of a row's first number. strip: rows that lie together, line by line; line: numbers of a line of
    64 bytes; stride: numbers from one row to the next when strip is 1."""
    return row // strip * strip * stride + row % strip * line


@inline
def place_in_row(i: Size, strip: Size, line: Size) -> Size:
    """Return the place of number i of a row, counted from its first number."""
    return i // line * line * strip + i % line
