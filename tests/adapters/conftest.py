"""Print the versions of the packages that the adapters are tested with; share the models."""

import re
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest


def pytest_report_header():
    """List what is installed of the packages that the files of requirements name."""
    found = []
    for path in sorted(Path(__file__).parent.glob("requirements*.txt")):
        for name in re.findall(r"^[\w-]+", path.read_text(encoding="utf-8"), re.MULTILINE):
            try:
                found.append(f"{name} {version(name)}")
            except PackageNotFoundError:
                found.append(f"{name} is not installed")
    return f"adapters: {', '.join(found)}"


@pytest.fixture(scope="session")
def place(tmp_path_factory):
    """Return the folder with the models that the adapters read."""
    from .models import write_models

    folder = tmp_path_factory.mktemp("adapters")
    write_models(folder)
    return folder
