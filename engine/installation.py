"""Say in error messages how to install what is missing. This is the only place that holds the commands."""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).parent
"""The folder that Python imported this package from."""


def install_command(extra: str = "") -> str:
    """Return advice to install the package, or one of its extras, with the command in full."""
    # There is no package on an index, so that the command works only in a clone. The quotes are for zsh.
    target = f"'.[{extra}]'" if extra else "."
    return f"run pip install {target} in a clone of encoder-engine"


def explain_missing_kernels(error: ImportError) -> str:
    """Return why the compiled modules cannot be imported, and what to do about it."""
    if (PACKAGE.parent / "setup.py").exists():
        return (
            f"the compiled modules are missing, because Python imported the source folder {PACKAGE} ({error}); start "
            "Python in another folder to use the installed package, or run make test, which compiles them here"
        )
    return f"the compiled modules cannot be imported ({error}); {install_command()}"
