"""The advice in messages about what is missing is right."""

import re
import shlex
import subprocess
import sys

import pytest

from engine.base import install
from engine.base.install import explain_missing_kernels, install_command

from ..tools.paths import ROOT


def test_the_command_works_in_a_clone():
    assert install_command().startswith("run pip install . in a clone")
    words = shlex.split(install_command("numba"))
    assert words[:4] == ["run", "pip", "install", ".[numba]"]
    assert words[words.index("or") + 1 :][:3] == ["pip", "install", "encoder-engine[numba]"]


def test_no_message_gives_other_advice():
    others = [path for path in (ROOT / "engine").rglob("*.py") if "pip install" in path.read_text(encoding="utf-8")]
    assert [path.name for path in others] == ["install.py"]


def test_every_extra_in_a_message_is_there():
    named = {extra for path in (ROOT / "engine").rglob("*.py")
             for extra in re.findall(r"install_command\(['\"]([\w-]+)", path.read_text(encoding="utf-8"))}
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    extras = project.partition("[project.optional-dependencies]")[2].partition("\n[")[0]
    assert named == {"text", "chat", "speech", "images", "files", "server", "numba", "cuda", "cuda-compile"}
    assert named <= set(re.findall(r"^([\w-]+) = ", extras, re.MULTILINE))


@pytest.mark.skipif(not (ROOT / "setup.py").exists(), reason="needs a clone of the repository")
def test_in_the_source_folder(tmp_path):
    # A copy without the compiled modules, as a clone is after `pip install .`.
    (tmp_path / "setup.py").touch()
    package = tmp_path / "engine"
    for path in (ROOT / "engine").rglob("*.py"):
        copy = package / path.relative_to(ROOT / "engine")
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
    code = "from engine.backends import get_backend; get_backend('cython')"
    run = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True,
                         env={"PYTHONPATH": str(tmp_path)})
    assert f"Python imported the source folder {package}" in run.stderr
    assert "start Python in another folder" in run.stderr


def test_an_installation_without_kernels(tmp_path, monkeypatch):
    monkeypatch.setattr(install, "PACKAGE", tmp_path / "site-packages" / "engine")
    assert "cannot be imported (broken); run pip install . in a clone" in explain_missing_kernels(ImportError("broken"))
