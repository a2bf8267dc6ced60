"""Find the files of a GGUF model that llama.cpp's llama-gguf-split has split, and check that they belong together.

Each file states its place, from 0 (split.no), the number of the files (split.count), and how many tensors all of them
have (split.tensors.count). Its name ends with its place, from 1, and the number of the files: -00001-of-00003.gguf.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..base.errors import listed, shown
from .reading import FormatError

_MAX_PARTS = 1000
_NAME = re.compile(r"(.*-)([0-9]{5})(-of-([0-9]{5})\.gguf)", re.DOTALL)
"""Matches the name of a part: the beginning (group 1), the number of the part (2), and the rest (3) with their number
(4)."""
_JOIN = "join the files with llama.cpp's llama-gguf-split --merge"


def part_paths(path: Path, settings: Mapping[str, Any]) -> list[Path]:
    """Return the paths of all files of a model, in order, by the path and the settings of one; [] if it is not split.

    Raises `FormatError` for a file whose name does not say where the others are.
    """
    count = settings.get("split.count", 1)
    if type(count) is not int or not 0 <= count <= _MAX_PARTS:
        raise FormatError(f"split.count, the number of files of the model, must be at most {_MAX_PARTS:,}, not "
                          f"{shown(count)}")
    if count <= 1:
        return []
    match = _NAME.fullmatch(path.name)
    if match is None or int(match[4]) != count:
        raise FormatError(f"it is one of {count} files of a model, whose names must end with -00001-of-{count:05}.gguf "
                          f"and so on; give the files these names, or {_JOIN}")
    return [path.with_name(f"{match[1]}{i + 1:05}{match[3]}") for i in range(count)]


def named_parts(name: str) -> list[str]:
    """Return the names of all files of a model, in order, by the name of one; [name] for a model that is not split."""
    match = _NAME.fullmatch(name)
    if match is None or not 1 <= int(match[4]) <= _MAX_PARTS:
        return [name]
    return [f"{match[1]}{i + 1:05}{match[3]}" for i in range(int(match[4]))]


def check_parts(settings: Sequence[Mapping[str, Any]], names: Sequence[Sequence[str]]) -> None:
    """Raise `FormatError` unless the files of a model belong together.

    settings, names: the settings and the names of the tensors of each file, in order.
    """
    wrong = [str(i + 1) for i, part in enumerate(settings)
             if part.get("split.no") != i or part.get("split.count") != len(settings)]  # fmt: skip
    if wrong:
        raise FormatError(f"the files {listed(wrong)} of {len(settings)} state another place in the model than their "
                          "names do")
    tensors = [name for part in names for name in part]
    if len(set(tensors)) != len(tensors):
        raise FormatError("two of its files have a tensor of the same name")
    stated = settings[0].get("split.tensors.count", len(tensors))
    if stated != len(tensors):
        raise FormatError(f"its {len(settings)} files have {len(tensors):,} tensors together, and the first one states "
                          f"{shown(stated)}")
