"""Convert configurations to JSON, which has lists in place of tuples, and back; `JsonConfig` is their base class."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, TypeVar

from ..base.errors import WeightsError, listed, shown

AnyConfig = TypeVar("AnyConfig", bound="JsonConfig")


def plain_fields(config: Any) -> dict[str, Any]:
    """Return the fields of a dataclass for JSON: a tuple becomes a list, and a dataclass becomes a dictionary."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(config).items()}


def with_tuples(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values from JSON for a dataclass: a list becomes a tuple, whose entries stay as they are."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}


def types_of(config: Any) -> dict[str, type]:
    """Return {field: type} of the fields of a dataclass whose annotation is one plain type, such as int or tuple[]."""
    plain: tuple[type, ...] = (bool, bytes, dict, float, int, str, tuple)
    kinds = {kind.__name__: kind for kind in plain}
    return {one.name: kinds[kind] for one in fields(config)
            if (kind := str(one.type).partition("[")[0]) in kinds and " | " not in str(one.type)}


def names_from(config: Any, first: str) -> tuple[str, ...]:
    """Return the names of the fields of a dataclass from the field `first` on."""
    names = [one.name for one in fields(config)]
    return tuple(names[names.index(first) :])


@dataclass(frozen=True)
class JsonConfig:
    """The base of configurations that are saved as a JSON object of their fields."""

    called: ClassVar[str]
    """The name of the object in messages, such as "a spelling"."""
    may_lack: ClassVar[bool] = False
    """Whether the object may lack fields, which then have their defaults."""

    def to_json(self) -> dict[str, Any]:
        """Return a plain dictionary that `from_json` turns back into an equal configuration."""
        return plain_fields(self)

    @classmethod
    def from_json(cls: type[AnyConfig], values: Any) -> AnyConfig:
        """Return the configuration of a dictionary of `to_json`; raises `WeightsError` for anything else."""
        types = {one.name: str(one.type) for one in fields(cls)}
        if not isinstance(values, dict) or not (
                values.keys() == types.keys() or (cls.may_lack and values.keys() < types.keys())):
            raise WeightsError(f"{cls.called} must have {', '.join(types)}, not "
                               f"{listed(values) if isinstance(values, dict) else shown(values)}")
        tuples = {name: value for name, value in values.items() if types[name].startswith("tuple[")}
        return cls(**values | with_tuples(tuples))
