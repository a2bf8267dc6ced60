"""An adapter whose package is not installed says so, by the name of the package."""

import re
import sys
from importlib import import_module

import pytest

from engine import UnsupportedError


@pytest.mark.parametrize(("adapter", "package", "module"), [
    ("langchain", "langchain-core", "langchain_core"), ("sklearn", "scikit-learn", "sklearn"),
    ("mteb", "mteb", "mteb"), ("arrow", "pyarrow", "pyarrow"), ("ray_data", "'ray[data]'", "ray"),
    ("spark", "'pyspark[sql]>=4.1'", "pyspark")])
def test_the_error_names_the_package(adapter, package, module, monkeypatch):
    name = f"engine.adapters.{adapter}"
    if adapter in ("ray_data", "spark"):
        pytest.importorskip("pyarrow")      # which engine.adapters.arrow names before
    for loaded in [one for one in sys.modules if one == name or one.partition(".")[0] == module]:
        monkeypatch.delitem(sys.modules, loaded)
    monkeypatch.setitem(sys.modules, module, None)
    message = f"{name} needs the package {package}; run pip install {package} "
    with pytest.raises(UnsupportedError, match=re.escape(message)) as error:
        import_module(name)
    assert isinstance(error.value, ImportError)
