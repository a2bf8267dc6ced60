"""An adapter whose package is not installed says so, by the name of the package."""

import sys
from importlib import import_module

import pytest

from engine import UnsupportedError


@pytest.mark.parametrize(("adapter", "package", "module"), [
    ("langchain", "langchain-core", "langchain_core"), ("sklearn", "scikit-learn", "sklearn"),
    ("mteb", "mteb", "mteb")])
def test_the_error_names_the_package(adapter, package, module, monkeypatch):
    name = f"engine.adapters.{adapter}"
    for loaded in [one for one in sys.modules if one == name or one.partition(".")[0] == module]:
        monkeypatch.delitem(sys.modules, loaded)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UnsupportedError, match=f"{name} needs the package {package}; run pip install ") as error:
        import_module(name)
    assert isinstance(error.value, ImportError)
