"""Claim a name among the processes of a machine: the owner holds a lock on a file of that name."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)
"""The numbers of the errors that a disk without locks gives."""


def claim(path: Path, mode: int = 0o666, *, without_locks: bool = False) -> Callable[[], None] | None:
    """Claim a path, and return a function that gives the claim up and deletes its file; None if somebody else has it.

    The system releases a lock when its process dies, so that no claim outlives its owner. mode: permissions of the
    file. without_locks: whether everybody gets the claim on a disk without locks; otherwise an `OSError` is raised.
    """
    while True:     # until the file that was locked is the one at the path
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        except OSError as error:
            if not (without_locks and error.errno in _NO_LOCKS):
                os.close(descriptor)
                raise
        with suppress(FileNotFoundError):
            # Another number means that the owner deleted the file between the opening and the lock.
            if os.fstat(descriptor).st_ino == path.stat().st_ino:
                break
        os.close(descriptor)

    def give_up() -> None:
        """Delete the file, and close it, which releases the lock."""
        path.unlink(missing_ok=True)
        os.close(descriptor)

    return give_up
