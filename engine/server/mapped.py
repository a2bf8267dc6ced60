"""`MappedFiles`: notices when another program writes to the files of a model that the server has mapped into memory."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path

from ..files.reading import FileState
from . import logs
from .refusals import Refusal

_LOOK_SECONDS = 0.02
"""The least seconds between two looks at the files, however many requests ask for one."""


class MappedFiles:
    """The mapped files of a model: a program that writes into one of them changes the weights of the running model.

    A new file that is renamed over an old one changes nothing, because the old one stays mapped. So the files are kept
    open, and not looked up by their names.
    """

    def __init__(self, mapped: Mapping[Path, FileState] | None = None):
        """mapped: the files, and their states when they were mapped."""
        self._files: dict[int, tuple[Path, FileState]] = {}
        self._message, self._due = "", 0.0      # what refused requests get, "" before a change; when to look again
        for path, state in (mapped or {}).items():
            try:
                descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            except OSError:     # deleted since then, and the mapped file stays as it is
                continue
            opened = FileState.of(os.fstat(descriptor))
            if (opened.device, opened.inode) == (state.device, state.inode):
                self._files[descriptor] = path, state
            else:       # replaced since then, and the mapped file is the old one
                os.close(descriptor)

    def check(self) -> None:
        """Raise `Refusal` if one of the files has ever changed; looks at them again if the last look is old enough."""
        if self._files and time.monotonic() >= self._due:
            self.look()
        if self._message:
            raise Refusal("changed", self._message)

    def look(self) -> None:
        """Look at the files, and write a line to the log at the first change that is found."""
        for descriptor, (path, state) in self._files.items() if not self._message else ():
            try:
                now = FileState.of(os.fstat(descriptor))
            except OSError:     # deleted on the server of a network file system
                now = FileState(0, 0, 0, 0)
            if now != state:
                self._message = ("a file of the model was written to while the server read it, so its answers would be "
                                 "wrong; the server has to be started again")
                logs.write("model_changed", file=str(path), bytes_before=state.size, bytes_now=now.size,
                           advice="start the server again; replace the file of a model by renaming a new one over it, "
                           "or serve with --memory copy")
                break
        self._due = time.monotonic() + _LOOK_SECONDS

    def close(self) -> None:
        """Close the files, which ends the watch over them."""
        for descriptor in self._files:
            os.close(descriptor)
        self._files.clear()
