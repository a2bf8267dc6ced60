"""Check the answers of a hub before `huggingface_hub` makes paths of them, and stop a file that exceeds its size.

The library joins the ETag of a file and the commit of an answer to the folder of its cache unchecked, so that a hub, or
a mirror of it, could write files elsewhere. There is no place for a check but the library's own functions: `guard`
wraps them, so that they raise a `HubError` for such an answer. They are wrapped for the whole process, because the
library downloads in threads of its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any
from urllib.parse import urlsplit

from ..base.errors import HubError, shown

COMMIT = re.compile(r"[0-9a-f]{40}")
_ETAG = re.compile(r"(?!.*\.\.)[\w+=-][\w.+=-]{0,254}", re.ASCII)
"""Matches an ETag that can be the name of a file: hashes of the hub and its mirrors have these characters."""
_REVISION = re.compile(r"[^\s\x00-\x1f\x7f~^:?*\[\\]+")
"""Matches a name with the characters of a ref in git."""
MOST_OF_UNKNOWN_SIZE = 2**28
"""Limit on the bytes of a file whose name ends as a text's does (`_TEXTS`), if the hub does not state its size."""
_TEXTS = (".json", ".txt", ".md", ".jinja", ".py", ".gitattributes")


def is_inside(path: Any) -> bool:
    """Return whether a path is one with slashes that stays in the folder that it is joined to."""
    return isinstance(path, str) and "\\" not in path and "\0" not in path and not {"", ".", ".."} & {*path.split("/")}


def is_revision(revision: str) -> bool:
    """Return whether a revision has the characters of a branch, a tag or a commit, and is a path inside a folder."""
    return is_inside(revision) and ".." not in revision and _REVISION.fullmatch(revision) is not None


def checked_commit(commit: Any) -> str:
    """Return a commit that a hub named; raises `HubError` for anything else."""
    if not isinstance(commit, str) or not COMMIT.fullmatch(commit):
        raise HubError(f"the hub answers with the commit {shown(commit)}, and a commit is 40 hexadecimal digits; "
                       "check HF_ENDPOINT")
    return commit


def checked_files(files: Iterable[Any]) -> set[str]:
    """Return the names of the files of a repository; raises `HubError` for one that is no path in its folder."""
    names = {*files}
    for name in names:
        if not is_inside(name):
            raise HubError(f"the hub lists a file {shown(name)}, which is no path inside a repository; check "
                           "HF_ENDPOINT")
    return names


def guard(library: Any) -> None:
    """Wrap the functions of `library`, the module huggingface_hub.file_download, that read a hub's answers, once."""
    for name, wrap in (("get_hf_file_metadata", _with_checked_answer), ("http_get", _with_limited_file),
                       ("_xet_file_metadata_from_tree_cache", _with_checked_entry)):
        function = getattr(library, name, None)     # the last one is in some versions alone
        if function is not None and not hasattr(function, "is_guarded"):
            guarded = wrap(function)
            guarded.is_guarded = True
            setattr(library, name, guarded)


def _check_etag(etag: Any) -> None:
    """Raise `HubError` for an ETag that cannot name a file of the cache."""
    if etag is not None and not _ETAG.fullmatch(etag):
        raise HubError(f"the hub answers with the ETag {shown(etag)}, which is no name of a file in the cache; check "
                       "HF_ENDPOINT")


def _with_checked_answer(function: Callable[..., Any]) -> Any:
    """Wrap the function that asks the hub for a file's ETag and commit, so that both are checked before use."""
    @wraps(function)
    def get_metadata(*args: Any, **options: Any) -> Any:
        try:
            metadata = function(*args, **options)
        except Exception as error:      # the library also uses the commit of an answer that has no file
            headers = getattr(getattr(error, "response", None), "headers", {})
            if (commit := headers.get("X-Repo-Commit")) is not None:
                checked_commit(commit)
            raise
        _check_etag(metadata.etag)
        if metadata.commit_hash is not None:
            checked_commit(metadata.commit_hash)
        return metadata

    return get_metadata


def _with_checked_entry(function: Callable[..., Any]) -> Any:
    """Wrap a function that returns the entry of a file in a cached list of the hub, so that its ETag is checked.

    The entry is (address, ETag, the caller's commit, ...), or None.
    """
    @wraps(function)
    def get_entry(*args: Any, **options: Any) -> Any:
        entry = function(*args, **options)
        if entry is not None:
            _check_etag(entry[1])
        return entry

    return get_entry


def _with_limited_file(function: Callable[..., Any]) -> Any:
    """Wrap the function that downloads a file, perhaps from byte `resume_size` on, so that it writes no more than its
    stated size.
    """
    @wraps(function)
    def get(url: str, temp_file: Any, *args: Any, **options: Any) -> Any:
        size = options.get("expected_size")
        if size is None and urlsplit(url).path.endswith(_TEXTS):
            size = MOST_OF_UNKNOWN_SIZE
        if size is not None:
            temp_file = _LimitedFile(temp_file, size, temp_file.tell() - options.get("resume_size", 0), url)
        return function(url, temp_file, *args, **options)

    return get


class _LimitedFile:
    """A file that takes no more bytes than the hub stated; an answer that is compressed could unpack to any size."""

    def __init__(self, file: Any, size: int, start: int, url: str):
        """size: the most bytes after position `start` of the open file. url: for messages."""
        self._file, self._size, self._start, self._url = file, size, start, url

    def write(self, data: bytes) -> int:
        """Write bytes; raises `HubError` beyond the limit."""
        if self._file.tell() - self._start + len(data) > self._size:
            name = urlsplit(self._url).path.rpartition("/")[2]
            raise HubError(f"the hub sends more than the {self._size:,} bytes that {shown(name)} has; check "
                           "HF_ENDPOINT")
        return int(self._file.write(data))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)
