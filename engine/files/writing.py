"""Write a file so that its path holds the old contents or all of the new ones, and never a part: `replacing`."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BufferedIOBase
from pathlib import Path
from typing import Any, BinaryIO, cast

_USUAL, _PRIVATE = 0o666, 0o600
"""The permissions of a new file, from which the system removes the umask, and of a file before it gets an old one's."""


def check_folder(path: Path) -> None:
    """Raise `FileNotFoundError` if the folder in which a file shall be written does not exist."""
    folder = path.parent
    if not os.path.lexists(folder):     # of a broken link, or a file in its place, opening says what is wrong
        raise FileNotFoundError(errno.ENOENT, "no such folder to write into; make it first", os.fspath(folder))


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Open a new file that replaces `path` if the block succeeds, and is deleted if it fails.

    A symbolic link stays, and the file that it leads to is replaced. The new file gets the permissions of the old one,
    and until it is complete only its owner may read it. A device, a FIFO or the like is never replaced: the block
    writes into it. An `OSError` of the block names `path`.
    """
    try:
        target = Path(os.path.realpath(path))
        old = target.stat() if target.exists() else None
        if old is not None and not stat.S_ISREG(old.st_mode):
            with target.open("wb") as special:
                yield cast(BinaryIO, _Output(special, seekable=False))
            return
        check_folder(target)
        try:
            temporary, file = _open_temporary(target, _USUAL if old is None else _PRIVATE)
        except OSError as error:
            error.filename = os.fspath(path)  # in place of the temporary file, which the caller does not know
            raise
        with file:  # an open file keeps its lock until it is renamed or deleted
            try:
                yield cast(BinaryIO, _Output(file, seekable=True))
                file.flush()
                if old is not None:
                    _keep_owner_and_mode(file.fileno(), old)
                os.fsync(file.fileno())
                os.replace(temporary, target)
            except BaseException:
                temporary.unlink(missing_ok=True)
                raise
    except OSError as error:
        if error.filename is None and error.errno is not None:
            error.filename = os.fspath(path)
        raise


def _open_temporary(path: Path, mode: int) -> tuple[Path, BinaryIO]:
    """Create and open a temporary file beside `path`, with no more permissions than `mode`; return its path and it.

    A temporary file that a killed process left is used again, or deleted if it has more permissions.
    """
    start = f".{path.name[:40]}"
    temporary = path.with_name(f"{start}.tmp")
    with suppress(OSError):
        descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, mode)
        if _is_ours(descriptor, temporary):
            if not stat.S_IMODE(os.fstat(descriptor).st_mode) & ~mode:
                os.ftruncate(descriptor, 0)
                return temporary, open(descriptor, "wb")
            temporary.unlink()
        os.close(descriptor)
    temporary = path.with_name(f"{start}.{os.urandom(6).hex()}.tmp")
    return temporary, open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode), "wb")


def _is_ours(descriptor: int, path: Path) -> bool:
    """Lock an open file; return whether it is this user's leftover, which no process writes and no other name has."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        opened, named = os.fstat(descriptor), path.lstat()
    except OSError:
        return False
    same = (opened.st_dev, opened.st_ino) == (named.st_dev, named.st_ino)
    return same and stat.S_ISREG(opened.st_mode) and opened.st_nlink == 1 and opened.st_uid == os.geteuid()


def _keep_owner_and_mode(descriptor: int, old: os.stat_result) -> None:
    """Give a new file the owner, if that is allowed, and the permissions of the file that it replaces."""
    new = os.fstat(descriptor)
    if (new.st_uid, new.st_gid) != (old.st_uid, old.st_gid):
        with suppress(OSError):  # only root may give a file away
            os.fchown(descriptor, old.st_uid, old.st_gid)
    os.fchmod(descriptor, stat.S_IMODE(old.st_mode))


class _Output(BufferedIOBase):
    """A wrapper of a file, into which NumPy writes arrays by `write`.

    Into a plain file, NumPy writes by a function of C, which has to seek and gives no reason when it fails.
    """

    def __init__(self, file: BinaryIO, seekable: bool):
        """seekable: whether `seek` works; otherwise `tell` counts the bytes that were written."""
        self._file, self._seekable, self._written = file, seekable, 0

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return self._seekable

    def write(self, data: Any) -> int:
        """Write bytes, and return their number."""
        count = self._file.write(data)
        self._written += count
        return count

    def tell(self) -> int:
        return self._file.tell() if self._seekable else self._written

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to a position, and return it; raises `OSError` for a file without positions."""
        if not self._seekable:
            raise OSError(errno.ESPIPE, os.strerror(errno.ESPIPE))
        return self._file.seek(offset, whence)

    def flush(self) -> None:
        if not self._file.closed:
            self._file.flush()
