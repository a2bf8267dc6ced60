"""Open the path of a model, or its name on the hub, in any format, and read the model: `open_source`, `load_model`."""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np

from ..base.advice.commands import COMMANDS
from ..base.arguments import flag
from ..base.errors import HubError, InputError, WeightsError, shown
from ..files.folder import ModelFolder
from ..model.precision import canonical_name
from ..weights.model import Model
from .ctranslate2 import CTranslate2Source, is_ctranslate2
from .gguf import GgufSource
from .hub import as_name, fetch
from .hugging_face import FolderSource
from .npz_model import NpzSource
from .source import CLASS_OF_KIND, Fetched, Source

_BARE = re.compile(r"[\w.-]+")
_ADDRESS = re.compile(r"(?:https?://[^/]+/|hf://)([\w.-]+/[\w.-]+?)/*(?:/tree/([^/]+))?/*")
_WITH_REVISION = re.compile(r"([\w.-]+/[\w.-]+)@(.+)")
"""These match what callers may write in place of org/name: a name alone, an address, and a name with its revision."""
_EXAMPLES = "sentence-transformers/all-MiniLM-L6-v2, openai-community/gpt2"


def open_source(path: str | os.PathLike[str] | Source, memory: str = "map", revision: str | None = None) -> Source:
    """Open a path: an `.npz`, a `.gguf`, a folder of Hugging Face, of sentence-transformers or of CTranslate2.

    path: a path that exists; or else the name of a model on the Hugging Face hub, as `find_model` describes.
    memory: "map" for weights that stay in the file, mapped read-only, unless they have to be converted to float32; or
        "copy" to read the whole file into private memory, so that a change of the file cannot hurt.
    revision: of a name, its branch, tag or commit; None for the main branch.

    A source that is open already is returned. Raises `WeightsError`, `InputError` and `HubError`.
    """
    if memory not in ("map", "copy"):
        raise InputError(f"memory must be 'map' or 'copy', not {shown(memory)}")
    if isinstance(path, Source):
        return path
    place, origin = find_model(path, revision)
    source = _open(place, memory)
    source.origin = origin
    return source


def _open(path: Path, memory: str) -> Source:
    """Return the source for a path, by the format of the file or folder there; raises `WeightsError` for others."""
    if os.path.isdir(path):
        folder = ModelFolder(path)
        return CTranslate2Source(folder, memory) if is_ctranslate2(folder) else FolderSource(folder, memory)
    if path.suffix == ".gguf":
        return GgufSource(path, memory)
    if os.path.isfile(path):
        return NpzSource(path, memory)
    raise WeightsError(f"{path}: expected an .npz, a .gguf or the folder of a model, and this is neither a file nor a "
                       "folder")


def load_model(path: str | os.PathLike[str] | Source, *, kind: str | None = None, memory: str = "map",
               task: str | None = None, precision: str | None = None, revision: str | None = None,
               long_context: bool = False) -> Model:
    """Load a model into memory, checked. Matrices in bfloat16 and float16 stay as they are.

    path: of a file or a folder, or a name on the hub, of which revision chooses the commit. memory: "map" or "copy".
    kind: "encode" for the encoder alone, or "generate", "transcribe" or "rank" for a decoder with the encoder that it
        reads; None for what the files say.
    task: the adapter to merge, of a folder that holds adapters for several tasks.
    precision: that of the run, if it is not that of the weights. Quantized matrices of a GGUF file are then
        widened to float32, as llama.cpp does it; else Q8_0, Q4_0, Q4_1 and Q5_0 are kept, and others become q8_0.
    long_context: of a model with two tables of rotary positions, whether to take the one for long sequences.

    Raises `WeightsError`, with everything that is wrong with the weights in one message, `UnsupportedError` for a model
    or a setting that does not run here, `InputError` for an unknown task or kind, and `HubError`.
    """
    source = open_source(path, memory, revision)
    source.precision = canonical_name(precision) if isinstance(precision, str) else None
    source.long_context = flag("long_context", long_context)
    kind = choose_kind(source, kind)
    if long_context and not (kind == "generate" and isinstance(source, FolderSource | GgufSource)):
        raise source.refuse_long_context()
    with np.errstate(all="ignore"):     # families compute with weights; the check reports infinity and NaN
        model = source.read(kind, task)
    return model.checked(str(source.path))


def choose_kind(source: Source, kind: str | None) -> str:
    """Return the kind of use that the caller asks for, or for None the one of the files; raises `InputError`.

    Notes in `source.kind_given` whether the caller asked.
    """
    if kind is not None and (not isinstance(kind, str) or kind not in CLASS_OF_KIND):
        raise InputError(f"kind must be None or one of {', '.join(CLASS_OF_KIND)}, not {shown(kind)}")
    source.kind_given = source.kind_given or kind is not None
    return source.kind if kind is None else kind


def model_path(path: str | os.PathLike[str]) -> Path:
    """Return a caller's path with `~` replaced by the home folder; raises `InputError` if it is not a path."""
    if not isinstance(path, (str, os.PathLike)):
        raise InputError(f"the path of a model must be a str or a Path, not {shown(path)}")
    if not os.fspath(path):
        raise InputError("the path of a model is an empty string; expected an .npz, a .gguf, the folder of a model, or "
                         "its name on the Hugging Face hub")
    return Path(os.path.expanduser(os.fsdecode(path)))


def _hint(path: str) -> str:
    """Return a sentence for a message about a missing path that was meant as a name on the hub; otherwise ""."""
    if "-" in path and path in COMMANDS:
        return ". It is the name of a task; a model is loaded by its own path alone, and its methods do tasks"
    if _BARE.fullmatch(path):
        return f". A name on the hub has the form org/name: {_EXAMPLES}"
    if (match := _ADDRESS.fullmatch(path) or _WITH_REVISION.fullmatch(path)) is None:
        return ""
    revision = f", with revision={shown(match[2])}, or --revision on the command line" if match[2] else ""
    return f". For the model on the hub say {shown(match[1])}{revision}"


def find_model(path: str | os.PathLike[str], revision: str | None = None) -> tuple[Path, Fetched | None]:
    """Return the path of a model, and for a name on the hub what was fetched, which is None for a path.

    A path that exists is always read. A str of the form org/name is a name on the hub if nothing called org is in the
    working folder, or if a revision is given, which paths do not have. Raises `WeightsError`, `InputError`, `HubError`.
    """
    place, name = model_path(path), as_name(path)
    if revision is not None and (name is None or os.path.lexists(place)):
        reason = "is a path that exists" if os.path.lexists(place) else "is not of the form org/name"
        raise InputError(f"revision is for the name of a model on the hub, and {shown(str(path))} {reason}; leave out "
                         f"revision={shown(revision)}")
    if os.path.lexists(place):
        return place, None
    missing = f"{shown(str(place), 300)[1:-1]}: no such file or folder"
    if name is None:
        raise WeightsError(f"{missing}; expected an .npz, a .gguf, the folder of a model, or its name on the Hugging "
                           f"Face hub{_hint(str(path))}")
    parent = place.parts[0]
    if revision is None and os.path.lexists(parent):
        raise WeightsError(f"{missing}, though {parent} is there, so this is read as a path and the hub is not asked. "
                           'For the model of this name on the Hugging Face hub say revision="main"; on the command '
                           "line, --revision main")
    try:
        fetched = fetch(name, revision)
    except HubError as error:
        raise HubError(f"{missing}; and as the name of a model on the hub: {error}") from error
    return fetched.path, fetched
