"""Run both sides of each example of docs/coming-from.md: `python -m tests.project.coming_from FOLDER`.

Each library is installed in an environment of its own in the folder, and the engine runs in this one. Both sides read
the same files and print their results. A library that does not install, or whose example cannot run here (some download
a model), is said to be so; only results that differ are a failure.
"""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from ..tools.coming_from import make_models
from ..tools.documents import ROOT, blocks

DOCUMENT = ROOT / "docs" / "coming-from.md"
TORCH = "https://download.pytorch.org/whl/cpu"
PACKAGES = {
    "transformers": ["torch==2.13.0", "transformers==5.23.0"],
    "llama-cpp-python": ["llama-cpp-python"],
    "CTranslate2": ["ctranslate2"],
    "faster-whisper": ["faster-whisper"],
    "fastembed": ["fastembed"],
    "FlagEmbedding": ["torch==2.13.0", "FlagEmbedding"],
}
"""The packages of each library, by the headings of the document."""
INSTALL_SECONDS = 1800
"""Time for an installation: llama-cpp-python compiles for up to twenty minutes on two busy cores."""
RUN_SECONDS = 300


@dataclass(frozen=True)
class Example:
    """The two blocks of one section."""

    library: str
    theirs: str
    ours: str


def examples(text: str) -> list[Example]:
    """Return the examples of a document, one for each heading "From ..."."""
    found = []
    for section in text.split("\n## From ")[1:]:
        library, _, body = section.partition("\n")
        theirs, ours = (block.code for block in blocks(body) if block.language == "python")
        found.append(Example(library.strip(), theirs, ours))
    return found


def run(python: Path, code: str, place: Path) -> tuple[bool, str]:
    """Return whether the code ran in a folder, and what it printed, or the last line of its error."""
    try:
        done = subprocess.run([python, "-W", "ignore", "-c", code], cwd=place, capture_output=True, text=True,
                              timeout=RUN_SECONDS, env=os.environ | {"PYTHONPATH": str(ROOT)}, check=False)
    except subprocess.TimeoutExpired:
        return False, f"it took more than {RUN_SECONDS} s"
    return done.returncode == 0, done.stdout.strip() if done.returncode == 0 else last_line(done.stderr)


def install(folder: Path, packages: list[str]) -> str | None:
    """Install packages in an environment of their own, unless they are there; return why that failed, or None."""
    python, mark = folder / "bin" / "python", folder / "installed.txt"
    if mark.exists() and mark.read_text(encoding="utf-8") == "\n".join(packages):
        return None
    try:
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True, capture_output=True, text=True)
        more = ["--extra-index-url", TORCH] if any(name.startswith("torch") for name in packages) else []
        subprocess.run([python, "-m", "pip", "install", "-q", *more, *packages], check=True, capture_output=True,
                       text=True, timeout=INSTALL_SECONDS)
    except subprocess.TimeoutExpired:
        return f"it took more than {INSTALL_SECONDS} s"
    except subprocess.CalledProcessError as error:
        return last_line(error.stderr)
    mark.write_text("\n".join(packages), encoding="utf-8")
    return None


def last_line(text: str) -> str:
    """Return the last line of an error, cut to 200 characters; pip's warnings count only where nothing else is."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    lines = [line for line in lines if not line.startswith("WARNING")] or lines
    return lines[-1][:200] if lines else "no message"


def compare(example: Example, folder: Path, models: Path, real: dict[str, str]) -> bool:
    """Run an example on both sides and print what came; return False if the results differ."""
    print(f"{example.library}, on {real[example.library]}")
    ran, ours = run(Path(sys.executable), example.ours, models)
    print(f"  here:  {ours}" if ran else f"  here:  FAILED: {ours}")
    environment = folder / example.library
    if (reason := install(environment, PACKAGES[example.library])) is not None:
        print(f"  there: did not install: {reason}", flush=True)
        return ran
    theirs_ran, theirs = run(environment / "bin" / "python", example.theirs, models)
    print(f"  there: {theirs}" if theirs_ran else f"  there: did not run: {theirs}")
    same = ours.split() == theirs.split()
    if theirs_ran:
        print("  the same" if same else "  DIFFERENT", flush=True)
    return ran and (same or not theirs_ran)


def main(folder: Path, libraries: list[str]) -> int:
    """Run the examples of these libraries, or of all; return 1 if results differ, or if ours does not run."""
    folder, models = folder.absolute(), folder.absolute() / "models"
    shutil.rmtree(models, ignore_errors=True)
    real = make_models(models, real=True)
    found = [example for example in examples(DOCUMENT.read_text(encoding="utf-8"))
             if not libraries or example.library in libraries]
    results = [compare(example, folder, models, real) for example in found]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
