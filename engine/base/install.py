"""Import optional packages, or raise errors with the command that installs them; no other module has these commands."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType

from .errors import PackageMissing, UnsupportedError

PACKAGE = Path(__file__).parents[1]
"""The folder that Python imported this package from."""


def install_command(extra: str = "") -> str:
    """Return advice to install the engine, or one of its extras, with the command in full."""
    # No index has the package, so pip knows its name only where it is installed. zsh needs the quotes.
    if not extra:
        return "run pip install . in a clone of encoder-engine"
    return (f"run pip install '.[{extra}]' in a clone of encoder-engine, or pip install 'encoder-engine[{extra}]' "
            "where it is installed")


def older_package(package: str, below: int) -> str:
    """Return advice to install a package older than a version, with the command in full."""
    return f"run pip install '{package}<{below}'"


def build_command() -> str:
    """Return advice to compile all modules anew, with the command in full."""
    return "run make test, which compiles them here" if (PACKAGE.parent / "setup.py").exists() else install_command()


def explain_missing_kernels(error: ImportError) -> str:
    """Return a message that explains why the compiled modules cannot be imported, and names the remedy."""
    if (PACKAGE.parent / "setup.py").exists():
        return (f"the compiled modules are missing, because Python imported the source folder {PACKAGE} ({error}); "
                f"start Python in another folder to use the installed package, or {build_command()}")
    return f"the compiled modules cannot be imported ({error}); {install_command()}"


def _require(module: str, what: str, advice: str, needs: str = "needs", package: str = "") -> ModuleType:
    """Import a module, or raise `UnsupportedError`: "WHAT NEEDS the package PACKAGE; ADVICE"."""
    try:
        return import_module(module)
    except (ImportError, OSError) as error:  # OSError: soundfile without its C library
        package = package or module.partition(".")[0]
        raise UnsupportedError(f"{what} {needs} the package {package}; {advice}") from error


require = partial(_require, what="encode", advice=install_command("text"))
"""Import a module of the [text] extra, or raise an `UnsupportedError` that says how to install it."""
require_speech = partial(_require, advice=install_command("speech"))
"""Import a module of the [speech] extra, or raise `UnsupportedError`; what: what needs it, for the message."""
require_images = partial(_require, what="reading an image", advice=install_command("images"), package="Pillow")
"""Import a module of the [images] extra, or raise an `UnsupportedError` that says how to install it."""
require_server = partial(_require, what="serve", advice=install_command("server"))
"""Import a module of the [server] extra, or raise `UnsupportedError`."""
require_files = partial(_require, what="Parquet, and places such as s3://bucket,", advice=install_command("files"),
                        needs="need")
"""Import a module of the [files] extra, or raise `UnsupportedError`."""


@contextmanager
def needs_package(name: str, what: str) -> Iterator[None]:
    """Let the imports of a `with` block raise `PackageMissing` if a package is not installed.

    name: the package's name for pip. what: the name, in the message, of the module that needs it.
    """
    try:
        yield
    except ImportError as error:
        raise PackageMissing(f"{what} needs the package {name}; run pip install {name} ({error})") from error
