"""Look whether somebody has written to the files that a server maps."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path

from ..files.reading import FileState
from . import logs
from .refusals import Refusal

_APART = 0.02
"""Seconds between two looks at the files, of requests that follow each other."""


class MappedFiles:
    """The files of a model that the process maps: whoever writes into one of them changes the numbers of the model.

    A new file that is renamed over an old one changes nothing, because the old one stays mapped. So the files are kept
    open, and not looked up by their names.
    """

    def __init__(self, mapped: Mapping[Path, FileState] | None = None):
        """mapped: the files, and their states when they were mapped."""
        self._files: dict[int, tuple[Path, FileState]] = {}
        self._changed, self._due = "", 0.0
        for path, state in (mapped or {}).items():
            try:
                descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            except OSError:     # deleted since then, and the mapped file stays as it is
                continue
            found = FileState.of(os.fstat(descriptor))
            if (found.device, found.inode) == (state.device, state.inode):
                self._files[descriptor] = path, state
            else:       # replaced since then
                os.close(descriptor)

    def check(self) -> None:
        """Raise `Refusal` if one of the files has changed; looks at them unless that was a moment ago."""
        if self._files and time.monotonic() >= self._due:
            self.look()
        if self._changed:
            raise Refusal("changed", self._changed)

    def look(self) -> None:
        """Look at the files, and write a line to the log at the first change that is found."""
        for descriptor, (path, state) in self._files.items() if not self._changed else ():
            try:
                found = FileState.of(os.fstat(descriptor))
            except OSError:     # deleted at the other end of a network
                found = FileState(0, 0, 0, 0)
            if found != state:
                self._changed = ("a file of the model was written to while the server read it, so its answers would be "
                                 "wrong; the server has to be started again")
                logs.write("model_changed", file=str(path), bytes_before=state.size, bytes_now=found.size,
                           advice="start the server again; replace the file of a model by renaming a new one over it, "
                           "or serve with --memory copy")
                break
        self._due = time.monotonic() + _APART

    def close(self) -> None:
        """Close the files."""
        for descriptor in self._files:
            os.close(descriptor)
        self._files.clear()
