"""Find the family of a config.json without a model_type, as transformers wrote it before version 3.

The class in `architectures` tells the family, or else the tensors do: only one family may know all of their names.
"""

from __future__ import annotations

from typing import Any

from ..base.errors import InputError, UnsupportedError, WeightsError, listed
from ..families import FAMILIES
from ..families.fields import class_name
from ..families.parts import Part
from ..files.folder import ModelFolder
from ..weights.parameters import expected_shapes
from .other_libraries import library_of


def with_model_type(folder: ModelFolder, values: dict[str, Any], config: str) -> dict[str, Any]:
    """Return the contents of a config.json, with a model_type that is found if it has none.

    config: the name of the file. Raises `WeightsError` or `UnsupportedError` if no family fits, `InputError` if several
    do.
    """
    if "model_type" in values:
        return values
    name = class_name(values).removesuffix("Model").partition("For")[0].partition("LMHead")[0]
    if of_class := [model_type for model_type, family in FAMILIES.items() if name and family.classes == name]:
        return values | {"model_type": of_class[0]}
    tensors = folder.tensor_names()
    fitting = _by_keys([model_type for model_type in FAMILIES if _fits(model_type, values, tensors)], values)
    if len(fitting) == 1:
        return values | {"model_type": fitting[0]}
    if not fitting and (library := library_of(values)):
        raise UnsupportedError(f"{folder.label(config)}: there is no model_type; this is the configuration of a model "
                               f"of {library}, which the engine does not run")
    if not fitting:
        raise WeightsError(f"{folder.label(config)}: there is no model_type, and the tensors fit no family that the "
                           "engine finds by them. Add the model_type if you know that the model is of one of the "
                           f"supported families, {', '.join(FAMILIES)}")
    raise InputError(f"{folder.label(config)}: there is no model_type, and the tensors fit {listed(fitting)}; add the "
                     "right one to the file")


def _by_keys(fitting: list[str], values: dict[str, Any]) -> list[str]:
    """Return those of the model types in `fitting` that the keys of a config.json do not exclude.

    If it has keys that only some of these families write, they alone remain; otherwise the families that would write
    such keys are excluded.
    """
    with_own = [model_type for model_type in fitting if not values.keys().isdisjoint(FAMILIES[model_type].own_keys)]
    return with_own or [model_type for model_type in fitting if not FAMILIES[model_type].own_keys]


def _fits(model_type: str, values: dict[str, Any], tensors: list[str]) -> bool:
    """Return whether the encoder of a family knows the names of all of these tensors, and has no others."""
    read = FAMILIES[model_type].read_encoder
    if read is None:
        return False
    try:
        part: Part = read(values | {"model_type": model_type})
    except (InputError, WeightsError, NotImplementedError):
        return False
    renamed = {part.names.rename(name) for name in tensors}
    expected = expected_shapes(part.config).keys()
    of_layers = {name for name in renamed if name is not None and name.startswith("layers.")}
    return bool(tensors) and renamed.isdisjoint(tensors) and expected <= renamed and (
        of_layers <= expected | {*part.names.unread})
