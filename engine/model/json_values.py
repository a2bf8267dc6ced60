"""The form that configurations have in JSON, which has lists in place of tuples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, TypeVar

from ..base.errors import WeightsError, listed, shown

AnyConfig = TypeVar("AnyConfig", bound="JsonConfig")


def plain_fields(config: Any) -> dict[str, Any]:
    """Return the fields of a dataclass as JSON has them: a tuple becomes a list, a dataclass a dictionary."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(config).items()}


def with_tuples(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values as a dataclass has them: a list becomes a tuple, and its own entries stay as they are."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}


def types_of(config: Any) -> dict[str, type]:
    """Return the type of each field of a dataclass that is of one plain type, as its annotation says, by its name."""
    plain: tuple[type, ...] = (bool, bytes, dict, float, int, str, tuple)
    kinds = {kind.__name__: kind for kind in plain}
    return {one.name: kinds[kind] for one in fields(config)
            if (kind := str(one.type).partition("[")[0]) in kinds and " | " not in str(one.type)}


def names_from(config: Any, first: str) -> tuple[str, ...]:
    """Return the names of the fields of a dataclass from the first of these on."""
    names = [one.name for one in fields(config)]
    return tuple(names[names.index(first) :])


@dataclass(frozen=True)
class JsonConfig:
    """A configuration that is a JSON object of its fields."""

    called: ClassVar[str]
    """What messages call the object, such as "a spelling"."""
    may_lack: ClassVar[bool] = False
    """Whether the object may lack fields, which then have their defaults."""

    def to_json(self) -> dict[str, Any]:
        """Return a plain dictionary that `from_json` turns back into an equal configuration."""
        return plain_fields(self)

    @classmethod
    def from_json(cls: type[AnyConfig], values: Any) -> AnyConfig:
        """Rebuild from `to_json`'s dictionary; raises `WeightsError` for anything else."""
        types = {one.name: str(one.type) for one in fields(cls)}
        if not isinstance(values, dict) or not (
                values.keys() == types.keys() or (cls.may_lack and values.keys() < types.keys())):
            raise WeightsError(f"{cls.called} must have {', '.join(types)}, not "
                               f"{listed(values) if isinstance(values, dict) else shown(values)}")
        tuples = {name: value for name, value in values.items() if types[name].startswith("tuple[")}
        return cls(**values | with_tuples(tuples))
