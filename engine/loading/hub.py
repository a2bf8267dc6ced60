"""Fetch the files of a model by its name on the Hugging Face hub, into the cache that the hub's own tools share.

    org/name                    a folder, or the only .gguf or .npz file of the repository
    org/name/path/model.gguf    one .gguf or .npz file of several

`huggingface_hub` makes the requests and keeps the cache, so that HF_HOME, HF_HUB_CACHE, HF_HUB_OFFLINE, HF_TOKEN,
HF_ENDPOINT and HF_HUB_DISABLE_PROGRESS_BARS mean what they mean to it. It is imported here alone, when a name is used.
A file is in the cache whole or not at all, and the files of weights are downloaded last.
"""

from __future__ import annotations

import errno
import logging
import re
import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from glob import escape
from importlib import import_module
from pathlib import Path
from typing import Any

from ..base.errors import HubError, InputError, listed, shown, without_credentials
from ..base.install import install_command
from ..families import get_family
from ..files.folder import FORMATS, ModelFolder
from ..files.gguf_parts import named_parts
from ..files.reading import read_bytes
from ..files.writing import replacing
from .ctranslate2 import MODEL
from .hub_guard import COMMIT, checked_commit, checked_files, guard, is_revision
from .model_files import files_read, has_model
from .module_list import MODULES
from .other_libraries import CONFIG, refuse_other_library
from .peft import refuse_adapter
from .router import module_folders
from .source import Fetched
from .static import MODEL2VEC

LOG = logging.getLogger("engine")

_NAME = re.compile(r"([\w-][\w.-]*/[\w-][\w.-]*)(?:/(.+\.(?:gguf|npz)))?", re.ASCII)
"""Matches org/name (group 1), and with FILE (group 2) behind it."""
ALONE = (".gguf", ".npz")
"""The suffixes of files that are each a whole model."""
_UNLISTED = "/"
"""An entry, which no file is called, of a set of files that is incomplete because no list of the commit is cached."""
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
_NOT_WRITABLE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR)
"""The errors of the system for a full disk, and for a folder into which nothing can be written."""
_NOT_LOGGED_IN, _FORBIDDEN = 401, 403
"""HTTP statuses. The hub answers with the first one for an unknown name, too, to hide which private names exist."""


@dataclass(frozen=True)
class HubName:
    """A model on the hub."""

    repository: str
    """The repository, "org/name"."""
    file: str | None = None
    """The path of a file in it that is the model; None for the only model in the repository."""

    def __str__(self) -> str:
        return self.repository if self.file is None else f"{self.repository}/{self.file}"


def as_name(path: Any) -> HubName | None:
    """Return the name on the hub if a string has the form of one; None for other strings, and for a `Path`."""
    match = _NAME.fullmatch(path) if isinstance(path, str) else None
    if match is None or (match[2] is None and match[1].endswith(ALONE)):
        return None
    return HubName(match[1], match[2])


def fetch(name: HubName, revision: str | None = None) -> Fetched:
    """Return a model of the hub whose files are all in the cache, after downloading those that were not.

    revision: a branch, a tag or a commit; None for the main branch. A commit that is in the cache needs no request;
    otherwise one request asks for the commit. If the hub cannot be reached, the commit in the cache is used, with a
    warning unless HF_HUB_OFFLINE is set. Raises `HubError`, and before weights are downloaded, `UnsupportedError` or
    `WeightsError` for a model that does not run here, as far as its small files tell.
    """
    client = _Client(name, revision)
    if revision is not None and COMMIT.fullmatch(revision) and (fetched := client.cached()) is not None:
        return fetched
    try:
        info = client.call(client.library.HfApi().model_info, timeout=client.library.constants.HF_HUB_ETAG_TIMEOUT)
    except _UnreachableError as error:
        fetched = client.cached()
        if fetched is None:
            raise HubError(f"{error}, and the cache has no complete copy of it: {client.lacks}") from error
        if not error.is_wanted:
            LOG.warning("%s; commit %s is loaded from the cache", error, fetched.commit)
        return fetched
    return client.download(checked_commit(info.sha), checked_files(file.rfilename for file in info.siblings or ()))


class _UnreachableError(HubError):
    """The hub does not answer, or HF_HUB_OFFLINE forbids to ask it. is_wanted: whether HF_HUB_OFFLINE is the reason."""

    def __init__(self, message: str, is_wanted: bool = False):
        super().__init__(message)
        self.is_wanted = is_wanted


class _MissingError(Exception):
    """A file is not in the cache."""


class _ListedFolder(ModelFolder):
    """A repository on the hub as a folder: it lists all files, and fetches a small file when it is read."""

    def __init__(self, path: Path, files: Collection[str], place: Callable[[str], Path], start: str = ""):
        """files: the paths of all files of the repository. place: fetches one, and returns where it is on this machine.

        start: the path of this folder in the repository, with a slash at its end; "" for the repository itself.
        """
        super().__init__(path)
        self.files, self._place, self._start = files, place, start

    def has(self, name: str) -> bool:
        return self._start + name in self.files

    def names_in(self, name: str, suffix: str) -> list[str]:
        """Return the names of the files in the folder `name`, not below it, that end with a suffix."""
        start = f"{self._start}{name}/"
        names = [file.removeprefix(start) for file in self.files if file.startswith(start) and file.endswith(suffix)]
        return sorted(name for name in names if "/" not in name)

    def read_bytes(self, name: str, limit: int) -> bytes:
        return read_bytes(self._place(self._start + name), limit)

    def _inside(self, parts: tuple[str, ...]) -> ModelFolder:
        return _ListedFolder(self.path.joinpath(*parts), self.files, self._place, f"{self._start}{'/'.join(parts)}/")


class _Client:
    """The functions of `huggingface_hub` for one repository."""

    def __init__(self, name: HubName, revision: str | None):
        """Import the library. Raises `InputError` for an impossible revision, and `HubError` without the library."""
        if revision is not None and (not isinstance(revision, str) or not revision):
            raise InputError(f"revision must be a branch, a tag or a commit, or None, not {shown(revision)}")
        if revision is not None and not is_revision(revision):
            # In the address of a request .. is resolved, so that another revision would be loaded, and the cache makes
            # a file of this name, which must not lie outside of it.
            raise InputError(f"revision must be a branch, a tag or a commit, whose parts are never empty, . or .., and "
                             f"which has no space and none of \\~^:?*[, not {shown(revision)}")
        self._name, self._revision = name, revision
        self._remedy = (". Load it once where the hub can be reached and HF_HUB_OFFLINE is not set; or run engine "
                        f"fetch {name} there, copy the folder that it prints here (cp -rL), and pass the path of the "
                        "copy")
        self.lacks = f"it has no file of it{self._remedy}"
        """The part of a message that says what the cache lacks, after `cached` has returned None."""
        try:
            self.library: Any = import_module("huggingface_hub")
            self._utils: Any = import_module("huggingface_hub.utils")
            guard(import_module("huggingface_hub.file_download"))
        except ImportError as error:
            raise HubError(f"a name needs the package huggingface_hub, which comes with tokenizers ({error}); "
                           f"{install_command('text')}") from error

    def call(self, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Call a function of the library for this repository and revision.

        Raises `HubError` in place of every error of the library, whose HTTP client differs between versions.
        """
        try:
            return function(self._name.repository, *args, **{"revision": self._revision, **options})
        except HubError:
            raise
        except Exception as error:
            # The library's error could show a password in the address of the hub.
            raise self._explained(error) from (None if self._has_secret else error)

    def download(self, commit: str, files: set[str]) -> Fetched:
        """Return the model of a commit, after downloading its files that are not in the cache.

        files: the paths of all files of the commit.
        """
        def place(file: str) -> Path:
            """Return the path in the cache of a file, which is downloaded if it is not there."""
            return Path(self.call(self.library.hf_hub_download, file, revision=commit))

        folder = _ListedFolder(Path(self._name.repository), files, place)
        model, needed = self._choose(folder)
        if not model:       # the model is the whole repository, and not one file of it
            _refuse_early(folder)
        snapshot = self._place(needed)
        if snapshot is None or snapshot.name != commit:
            # The last file, of weights, comes in a call of its own, so that a cache that has it has the whole model.
            for wanted in (needed[:-1], needed):
                if wanted:      # nothing comes before the only file
                    names = [escape(file) for file in wanted]
                    snapshot = Path(self.call(self.library.snapshot_download, revision=commit, allow_patterns=names,
                                              tqdm_class=self._bar()))
                    self._note(snapshot)
        assert snapshot is not None
        if not all((snapshot / file).is_file() for file in needed):
            raise HubError(f"{self._described} changed while it was fetched; load it again")
        if MODULES not in files and not self._knows_modules(snapshot, self._files_of_commit(snapshot)):
            with suppress(HubError):    # so that the cache notes that there is no such file
                place(MODULES)
        return Fetched(snapshot / model, str(self._name), commit)

    def _note(self, folder: Path) -> None:
        """Note in the cache that the revision means the commit of a folder, for a later call without the hub.

        The library notes it only if it is asked for the revision itself, which could have become another commit by now.
        """
        revision = self._revision or self.library.constants.DEFAULT_REVISION
        path = folder.parents[1] / "refs" / revision    # beside snapshots/COMMIT, which is the folder
        if revision == folder.name or (path.is_file() and path.read_text() == folder.name):
            return
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(path) as file:
                file.write(folder.name.encode())
        except OSError as error:
            raise self._explained(error) from error

    def cached(self) -> Fetched | None:
        """Return the model of the revision in the cache; None, with a reason in `lacks`, unless all files are there."""
        try:
            folder = Path(self.call(self.library.snapshot_download, local_files_only=True, allow_patterns=[]))
        except HubError:
            return None

        def place(file: str) -> Path:
            """Return the path in the cache of a file; raises `_MissingError` if it is not there."""
            if not (folder / file).is_file():
                raise _MissingError(file)
            return folder / file

        try:
            files = self._files_of_commit(folder)
            model, needed = self._choose(_ListedFolder(Path(self._name.repository), files, place))
            for file in needed:
                place(file)
            if not model and not self._knows_modules(folder, files):    # "": the model is the whole repository
                raise HubError(f"another program fetched files of commit {folder.name}, and it is not known whether it "
                               f"has a {MODULES}, which says how vectors are made. Load the name once with a network, "
                               f"or pass the folder to take it as it is: {folder}")
        except _MissingError as error:
            self.lacks = f"{error} of commit {folder.name} is not there{self._remedy}"
            return None
        except HubError as error:
            self.lacks = str(error)
            return None
        return Fetched(folder / model, str(self._name), folder.name)

    def _bar(self) -> type:
        """Return the class of progress bars: the library's own, which show themselves on terminals alone."""
        fixed = {} if sys.stderr.isatty() else {"disable": True}

        class Bar(self._utils.tqdm):  # type: ignore[misc, name-defined]
            def __init__(self, *args: Any, **options: Any):
                super().__init__(*args, **{**options, **fixed})

        return Bar

    def _files_of_commit(self, folder: Path) -> set[str]:
        """Return the paths of all files of the commit in a folder of the cache.

        Versions of the library from 2 on cache the list. Without it, the files that are there and `_UNLISTED`.
        """
        with suppress(AttributeError, HubError):
            return {file.path for file in self.call(self.library.get_cached_repo_tree, revision=folder.name)}
        return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()} | {_UNLISTED}

    def _knows_modules(self, folder: Path, files: set[str]) -> bool:
        """Return whether the cache tells if a commit has a modules.json. files: the result of `_files_of_commit`.

        A library without modules, such as transformers, does not fetch that file, and without it vectors would be
        pooled in another way.
        """
        if _UNLISTED not in files or MODULES in files:
            return True
        # .gitattributes is in every repository, so all files were fetched if it is there.
        return ".gitattributes" in files or self.call(
            self.library.try_to_load_from_cache, MODULES, revision=folder.name) is not None

    def _place(self, files: Sequence[str]) -> Path | None:
        """Return the folder of the revision in the cache, or None unless it has all of these files."""
        revision = self._revision or self.library.constants.DEFAULT_REVISION
        paths = [self.call(self.library.try_to_load_from_cache, file, revision=revision) for file in files]
        if not all(isinstance(path, str) for path in paths):
            return None
        return Path(paths[0]).parents[files[0].count("/")]      # as many folders up as the name of the file has

    def _choose(self, folder: _ListedFolder) -> tuple[str, list[str]]:
        """Return (path of the model in a repository, or "" for all of it; paths of the files that loading it reads).

        The weights come last. Raises `HubError` for a repository without a model, or with several.
        """
        if self._name.file is not None:
            parts = named_parts(self._name.file)
            if missing := [part for part in parts if part not in folder.files]:
                raise HubError(f"{self._described} has no file {listed(missing)}; it has "
                               f"{listed(_alone(folder.files)) or 'no .gguf and no .npz'}")
            return self._name.file, parts
        if has_model(folder):
            return "", files_read(folder)
        alone = _alone(folder.files)
        if len(alone) == 1:
            return alone[0], named_parts(alone[0])
        if alone:
            raise HubError(f"{self._described} has {len(alone)} files that are a model each; choose one, such as "
                           f"{self._name}/{alone[0]}: {listed(alone)}")
        raise HubError(f"{self._described} has no weights that the engine reads, which are {', '.join(FORMATS)}, "
                       f"a .gguf, an .npz or CTranslate2's {MODEL}; it has {listed(sorted(folder.files)) or 'no file'}")

    @property
    def _has_secret(self) -> bool:
        """Whether the address of the hub holds a password, which messages of the library could then show."""
        address: str = self.library.constants.ENDPOINT
        return without_credentials(address) != address

    @property
    def _described(self) -> str:
        return self._name.repository + (f" at revision {shown(self._revision)}" if self._revision else "")

    def _explained(self, error: Exception) -> HubError:
        """Return the engine's error for an exception of the library, with advice where there is some."""
        known, what, hub = self._utils, self._described, without_credentials(self.library.constants.ENDPOINT)
        status = getattr(getattr(error, "response", None), "status_code", None)
        log_in = "log in with hf auth login, or set HF_TOKEN to a token that may read it"
        if isinstance(error, known.OfflineModeIsEnabled):
            return _UnreachableError("HF_HUB_OFFLINE is set, so the hub is not asked", is_wanted=True)
        if isinstance(error, known.GatedRepoError):
            return HubError(f"{what} is gated: ask for access at {hub}/{self._name.repository}, then {log_in}")
        if isinstance(error, known.RevisionNotFoundError):
            return HubError(f"{self._name.repository} has no revision {shown(self._revision)}; a revision is a branch, "
                            f"a tag or a commit, as {hub}/{self._name.repository}/tree/main lists them")
        if isinstance(error, known.RepositoryNotFoundError) or status == _NOT_LOGGED_IN:
            return HubError(f"{hub} shows no model of the name {self._name.repository}; check the name, and if the "
                            f"model is private, {log_in}")
        if isinstance(error, known.HFValidationError):
            return HubError(f"{self._name.repository} is not a name that the hub allows: {_first_line(error)}")
        if status == _FORBIDDEN:
            return HubError(f"{hub} refuses access to {what} (HTTP {status}); {log_in}")
        if (isinstance(error, OSError) and error.errno in _NO_SPACE) or "No space left" in str(error):
            return HubError(f"there is no space left for {what} in {self.library.constants.HF_HUB_CACHE}; free some, "
                            "or set HF_HOME to a folder on a larger disk. What came whole stays")
        if isinstance(error, OSError) and error.errno in _NOT_WRITABLE:
            return HubError(f"the cache {self.library.constants.HF_HUB_CACHE} cannot be written "
                            f"({error.strerror}); set HF_HOME to a folder that can")
        if isinstance(error, known.LocalEntryNotFoundError) and isinstance(error.__cause__, Exception):
            return self._explained(error.__cause__)
        # A message may name a proxy with its password; one that shows the hub's own is left out.
        detail = "" if self._has_secret else f": {without_credentials(_first_line(error))}"
        reason = f"HTTP {status}" if status else f"{type(error).__name__}{detail}"
        return _UnreachableError(f"{what} could not be fetched from {hub} ({reason})")


def _refuse_early(folder: ModelFolder) -> None:
    """Raise `UnsupportedError` for a model of an unknown family, PEFT or another library, by its small files."""
    for _, part in module_folders(folder) if folder.has(MODULES) else [("", folder)]:
        refuse_adapter(part, "AutoModel")
        refuse_other_library(part)
        model_type = part.read_object_or_empty(CONFIG).get("model_type")
        if model_type is not None and model_type != MODEL2VEC and part.has_weights():
            with part.within(CONFIG):
                get_family(part.read_object(CONFIG))


def _alone(files: Iterable[str]) -> list[str]:
    """Return the paths of the files that are each a whole model; of a model in several files, the first one."""
    alone = sorted(file for file in files if file.endswith(ALONE))
    return [file for file in alone if file == named_parts(file)[0]]


def _first_line(error: Exception) -> str:
    """Return the first line of an error's message; "" if it has none."""
    return next(iter(str(error).strip().splitlines()), "")
