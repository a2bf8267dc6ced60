"""A property that is computed once, and that no fork can lock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")


class lazy(Generic[T]):  # noqa: N801, as it is written like functools.cached_property
    """An attribute that is computed when it is first read, and then kept; without a lock.

    `functools.cached_property` holds a lock while it computes, before Python 3.12. A child that another thread forks at
    that moment would wait for it for ever. Without it, two threads that come first at the same time both compute.
    """

    def __init__(self, compute: Callable[[Any], T]):
        self._compute = compute
        self.__doc__ = compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> lazy[T]: ...
    @overload
    def __get__(self, instance: object, owner: type | None = None) -> T: ...

    def __get__(self, instance: object | None, owner: type | None = None) -> lazy[T] | T:
        if instance is None:
            return self
        value = instance.__dict__[self._name] = self._compute(instance)  # found before this from now on
        return value
