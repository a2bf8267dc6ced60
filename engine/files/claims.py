"""Claim a name among the processes of a machine, by a file that one of them has locked."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)
"""The errors of a disk that has no locks."""


def claim(path: Path, mode: int = 0o666, *, without_locks: bool = False) -> Callable[[], None] | None:
    """Return a function that gives up the claim on a path, and deletes its file; None if somebody else has the claim.

    The system gives a lock up when its process dies, so that no claim outlives its owner. mode: who may open the file.
    without_locks: whether everybody has the claim on a disk that has no locks; else that is an `OSError`.
    """
    while True:
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
            if os.fstat(descriptor).st_ino == path.stat().st_ino:     # else its owner deleted it meanwhile
                break
        os.close(descriptor)

    def give_up() -> None:
        path.unlink(missing_ok=True)
        os.close(descriptor)

    return give_up
