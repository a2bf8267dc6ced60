"""Every backend's single operations have the signatures of the protocol `Ops`, and are all of it and no more."""

import inspect

import pytest

from engine.backends import get_backend
from engine.backends.ops_interface import Ops


def public(object_):
    """Return the names of the public attributes of an object or a class."""
    return {name for name in dir(object_) if not name.startswith("_")}


def parameters(function):
    """Return what a caller must know of a function's parameters: name, kind and default, in order."""
    return [(p.name, p.kind.description, p.default) for p in inspect.signature(function).parameters.values()]


@pytest.fixture(scope="module")
def ops(backend):
    return get_backend(backend).ops(1)


def test_the_protocol_has_operations():
    assert {"attention", "linear", "softmax"} <= public(Ops)


def test_there_are_the_protocols_methods_and_no_other(ops):
    assert public(ops) == public(Ops)


@pytest.mark.parametrize("name", sorted(public(Ops)))
def test_parameters_are_the_protocols(ops, name):
    assert parameters(getattr(type(ops), name)) == parameters(getattr(Ops, name))
