"""Convert the config and the tensor names of Hugging Face models to the engine's own, family by family.

A family is a module here, which nothing lists: every module is imported, and its tables become part of the tables below
of the same name. `FAMILIES` has a row by model_type: a function that describes the encoder, one that describes the
decoder with the encoder that it reads, or both (`parts.py` has their types).
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from ..base.errors import UnsupportedError, WeightsError, shown
from .fields import class_name, refuse_remote_code
from .gguf import Architecture
from .parts import Family

_MODULES = [import_module(f"{__name__}.{module.name}") for module in iter_modules(__path__)]


def _rows_of_families(table: str) -> dict[Any, Any]:
    """Return one table, sorted by its keys, with the rows of the tables of this name in all modules."""
    rows = [row for module in _MODULES for row in getattr(module, table, {}).items()]
    return dict(sorted(rows, key=lambda row: row[0]))


FAMILIES: dict[str, Family] = _rows_of_families("FAMILIES")
"""The family of each model_type of config.json."""
BY_POSITIONS: dict[tuple[str, str], Family] = _rows_of_families("BY_POSITIONS")
"""The families that share their model_type with another one, by model_type and position_embedding_type."""
ARCHITECTURES: dict[str, Architecture] = _rows_of_families("ARCHITECTURES")
"""The supported values of general.architecture in GGUF files."""
REFUSED: dict[str, str] = _rows_of_families("REFUSED")
"""Why a model_type is refused that users may take for one of the supported families."""
REFUSED_CLASSES: dict[str, str] = _rows_of_families("REFUSED_CLASSES")
"""Classes whose config.json has the model_type of a supported family, and that are refused: what their models do."""


def get_family(values: dict[str, Any]) -> Family:
    """Return the family of the model that a config.json describes; raises `UnsupportedError` for an unknown one."""
    model_type = values.get("model_type")
    if not isinstance(model_type, str):
        raise WeightsError(f"model_type must name a model family ({', '.join(FAMILIES)}), not {shown(model_type)}")
    if model_type not in FAMILIES:
        reason = f" ({REFUSED[model_type]})" if model_type in REFUSED else ""
        raise UnsupportedError(f"model_type {shown(model_type)} is not supported{reason}; supported are "
                               f"{', '.join(FAMILIES)}")
    if (name := class_name(values)) in REFUSED_CLASSES:
        raise UnsupportedError(f"architectures names {name}, which {REFUSED_CLASSES[name]} and is no plain "
                               f"{shown(model_type)} model; the engine does not run this kind of model")
    family, positions = FAMILIES[model_type], values.get("position_embedding_type")
    if isinstance(positions, str):
        family = BY_POSITIONS.get((model_type, positions), family)
    # Known remote code is accepted unless the config leaves open what the code would decide by a default of its own.
    is_stated = family.code_decides is None or type(values.get(family.code_decides)) is bool
    refuse_remote_code(values, family.remote_code if is_stated else ())
    return family
