"""List why a folder is refused, for `engine info`: fields of config.json and tensors that the nearest family lacks.

The nearest family is the one of the model_type, or else the one whose names fit most tensors of the folder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from ..base.errors import EngineError, listed, shown
from ..families import FAMILIES
from ..families.parts import Part, Parts
from ..files.folder import ModelFolder
from ..loading.other_libraries import CONFIG
from ..weights.parameters import expected_shapes

_NAMED = 20
"""The most fields that are named; a config.json with more of them is of another kind of model."""


@dataclass(frozen=True)
class _Fit:
    """How well the encoder, or the generating model, of a family fits a folder."""

    family: str
    fields: tuple[str, ...]
    """The messages about fields of config.json that the family refuses."""
    known: int
    """The number of tensors whose names the family knows."""
    unknown: tuple[str, ...]
    """The names in the files of the other tensors."""
    missing: tuple[str, ...]
    """The canonical names of tensors that the family needs and the files lack."""


def obstacles(folder: ModelFolder) -> list[tuple[str, str]]:
    """Return (label, text) of each reason why a folder is refused; [] for a folder without a readable config.json."""
    try:
        values = folder.read_object(CONFIG) if folder.has(CONFIG) else {}
        names = folder.tensor_names() if folder.has_weights() else []
    except EngineError:
        return []
    if not values:
        return []
    model_type = values.get("model_type")
    families = [model_type] if isinstance(model_type, str) and model_type in FAMILIES else list(FAMILIES)
    fits = [fit for family in families for fit in _fits(family, values, names)]
    if not fits:
        return []
    close = get_close_matches(model_type[:100], FAMILIES, n=1) if isinstance(model_type, str) else []
    best = max(fits, key=lambda fit: (fit.known - len(fit.unknown) - len(fit.missing), fit.family in close))
    rows = [("nearest family", f"{best.family}: it knows {best.known} of {len(names)} tensors")]
    if families != [model_type]:
        rows.append(("in the way", f"model_type {shown(model_type)}, which no family here has"))
    rows += [("in the way", field) for field in best.fields]
    if best.unknown:
        rows.append(("unknown tensors", f"{len(best.unknown)}: {listed(best.unknown)}"))
    if best.missing:
        rows.append(("missing tensors", f"{len(best.missing)}, by their names here: {listed(best.missing)}"))
    return rows


def _fits(family: str, values: Mapping[str, Any], names: list[str]) -> Iterator[_Fit]:
    """Yield the fit of a family's encoder, then of its generating model, to a folder.

    values: the contents of config.json. names: of all tensors in the files.
    """
    for read in (FAMILIES[family].read_encoder, FAMILIES[family].read_generator):
        if read is None:
            continue
        fields, described = _read(read, {**values, "model_type": family})
        if described is None:
            continue
        pair = (described, None) if isinstance(described, Part) else (described.encoder, described.decoder)
        parts = [part for part in pair if part]
        known: set[str] = set()
        missing: list[str] = []
        for part in parts:
            shapes = expected_shapes(part.config)
            renamed = {name: part.names.rename(name) for name in names}
            # `rename` leaves an unknown name as it is, and puts " as " behind the name of a copy of another tensor.
            known |= {name for name, new in renamed.items() if new != name or name in shapes}
            there = {new.partition(" as ")[0] for new in renamed.values() if new is not None}
            there |= {each for new in there for each in part.names.maps_in(new)}        # maps that lie in one tensor
            # A `finish` hook may make tables that files lack, and never a tensor of a layer.
            has_hook = part.finish is not Part.finish
            missing += [name for name in shapes
                        if name not in there and not (has_hook and not name.startswith("layers."))]
        yield _Fit(family, fields, len(known), tuple(name for name in names if name not in known), tuple(missing))


def _read(read: Callable[[dict[str, Any]], Part | Parts], values: dict[str, Any]
          ) -> tuple[tuple[str, ...], Part | Parts | None]:
    """Return the messages about the fields that a reader refuses, and its result without these fields, or None.

    read: a function of `Family`. values: changed here. A reader names one field at a time, so that it is called again
    without this field.
    """
    fields: list[str] = []
    for _ in range(_NAMED):
        try:
            return tuple(fields), read(dict(values))
        except EngineError as error:
            named = [key for key in values if key != "model_type" and key in str(error)]
            if not named:
                return (*fields, str(error)), None
            fields.append(str(error))
            del values[max(named, key=len)]
    return tuple(fields), None
