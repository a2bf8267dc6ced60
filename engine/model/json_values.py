"""The form that configurations have in JSON, which has lists in place of tuples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any


def plain_fields(config: Any) -> dict[str, Any]:
    """Return the fields of a dataclass as JSON has them: a tuple becomes a list, a dataclass a dictionary."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(config).items()}


def with_tuples(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values as a dataclass has them: a list becomes a tuple, and its own entries stay as they are."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
