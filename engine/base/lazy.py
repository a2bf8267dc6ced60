"""`lazy`: a property that is computed once, without a lock that a fork could leave locked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")


class lazy(Generic[T]):  # noqa: N801, as it is written like functools.cached_property
    """An attribute that is computed when it is first read, and then kept; without a lock.

    Before Python 3.12, `functools.cached_property` holds a lock while it computes. A child that another thread forks at
    that moment would wait for the lock for ever. Without a lock, two threads that read it first at the same time both
    compute the value.
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
        """Compute the value, and keep it in the instance, where Python finds it before this method from now on."""
        if instance is None:
            return self
        value = instance.__dict__[self._name] = self._compute(instance)
        return value
