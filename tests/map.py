"""Which tests to open for a module of the engine.

    python -m tests.map engine/loading/static.py        print them
    .venv/bin/pytest $(python -m tests.map engine/loading/static.py)        run them

The tests of engine/PACKAGE/MODULE are in tests/PACKAGE/test_MODULE.py, or in the folder of the package around it; the
kernels of both CPU backends share those in tests/backends/kernels. Other tests of it are those that see the mistakes of
tests/mistakes in it. A module with neither has those of `OTHERS`, or else of the whole folder of its package.
tests/project/test_map.py checks that `OTHERS` has no more than it needs.
"""

import ast
import sys
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path, PurePosixPath

from .mistakes.cases import MISTAKES
from .tools.paths import ROOT, TESTS

ENGINE = ROOT / "engine"
SUFFIXES = {".py", ".pyx", ".pxi", ".pxd", ".h", ".c"}

OTHERS = {
    "__init__.py": "project/test_imports.py",
    "__main__.py studies/bench*.py": "cli/test_cli.py",
    "*/other_names.py": "interface/test_other_names.py",
    "backends/cython_cpu/kernels/roofline.pxi": "backends/test_peak.py",
    "backends/*_cpu/kernels/* backends/cython_cpu/*.p* backends/cython_cpu/simd/*": "backends/kernels",
    "backends/cpu/native/features.pxi": "backends/cython_cpu/test_isa.py",
    "backends/cpu/native_ops.py": "backends/kernels/test_operations.py backends/cpu/test_random_calls.py",
    "backends/global_names.py backends/score_*.py": "backends/numba_cpu/test_score_mod.py",
    "backends/numba_cuda/__init__.py backends/numba_cuda/toolchain.py": "backends/test_cuda.py",
    "backends/numba_cuda/* backends/numba_cpu/* backends/reference/* backends/cpu/*": "",
    "backends/ops_interface.py": "ops/test_signatures.py",
    "backends/*": "backends/reference backends/cpu/test_plan.py backends/cpu/test_decoder.py",
    "base/lazy.py": "interface/test_forks.py",
    "base/version.py": "project/test_setup.py",
    "cli/chat.py": "chat/test_terminal.py",
    "cli/describe.py": "programs/test_program.py",
    "cli/embed.py methods/columns.py": "jobs/test_embed.py",
    "cli/fetch.py": "loading/test_hub.py",
    "cli/serve.py": "server/test_stop.py",
    "cli/transcribe.py": "speech/test_recordings.py interface/test_transcriber.py",
    "encoding/maxsim.py loading/late.py model/late_config.py": "heads/test_late.py",
    "families/heads.py interface/head_methods.py loading/head_tokens.py model/head.py weights/head.py": "heads",
    "files/claims.py": "server/test_http.py jobs/test_embed.py",
    "generation/lengths.py": "interface/test_lengths.py",
    "interface/similarity_methods.py": "encoding/test_similarity.py heads/test_late.py",
    "loading/bge_m3.py": "heads/test_bge_m3.py",
    "loading/chat.py model/chat_config.py": "chat/test_reading.py chat/test_template.py",
    "loading/generation_settings.py": "generation/test_settings.py",
    "loading/gguf*.py": "families/test_generating.py loading/test_gguf_encoders.py",
    "loading/logit_score.py": "interface/test_reranker.py",
    "loading/modules.py loading/router.py loading/static.py": "heads/test_modules.py weights/test_modules.py",
    "methods/chat.py": "chat/test_methods.py",
    "methods/inputs.py methods/score.py":
        "interface/test_generator.py interface/test_lengths.py interface/test_session.py",
    "methods/transcribe.py": "interface/test_transcriber.py speech/test_recordings.py",
    "methods/translate.py": "text/test_language_tokenizers.py interface/test_generator.py",
    "methods/*": "methods heads/test_golden.py heads/test_heads.py",
    "model/bits.py": "backends/test_portable_bits.py",
    "model/run_config.py": "interface/test_engine.py interface/test_arguments.py",
    "model/text_config.py": "text/test_tokenizer.py loading/test_load_and_save.py",
    "studies/compare_calibration.py": "cli/test_calibrate.py",
    "text/token_texts.py": "text/test_incremental.py text/test_tokenizer.py",
    "weights/calibration.py": "studies/test_calibrate.py",
}
"""Modules, as patterns of paths in engine/, and their tests in tests/, where these are in a folder of another name.

Of several rows that fit a module, the first one holds; an empty row stands for the folder of its package.
"""


def modules() -> list[str]:
    """Return the paths in engine/ of all modules that define something. Compiled modules count."""
    return sorted(path.relative_to(ENGINE).as_posix() for path in ENGINE.rglob("*")
                  if path.suffix in SUFFIXES and not _is_generated(path) and not _only_imports(path))


def _is_generated(path: Path) -> bool:
    """Return whether Cython writes the file: a .c file beside a .pyx file of its name."""
    return path.suffix == ".c" and path.with_suffix(".pyx").exists()


def _only_imports(path: Path) -> bool:
    """Return whether a module is an __init__.py that defines no function and no class."""
    return path.name == "__init__.py" and not any(
        isinstance(node, ast.FunctionDef | ast.ClassDef) for node in ast.parse(path.read_text(encoding="utf-8")).body)


def files_of(module: str) -> list[str]:
    """Return the tests of a module, as paths in tests/ of files and of whole folders.

    module: its path in engine/, such as "loading/static.py".
    """
    return (list(dict.fromkeys([*named(module), *_seeing().get(module, ())])) or OTHERS.get(row_of(module), "").split()
            or [next(str(folder) for folder in PurePosixPath(module).parents if (TESTS / folder).is_dir())])


def named(module: str) -> list[str]:
    """Return the test files that have the name of a module, as paths in tests/, those of the nearest folder first.

    module: its path in engine/. An __init__.py has the name of its package.
    """
    path = PurePosixPath(module)
    name = path.parent.name if path.stem == "__init__" else path.stem
    folders = [folder for parent in path.parents for folder in
               ([parent, parent / "kernels"] if "_cpu/kernels/" in module or "cpu/native/" in module else [parent])]
    return [found for folder in folders if (TESTS / (found := f"{folder}/test_{name}.py")).exists()]


@cache
def _seeing() -> dict[str, list[str]]:
    """Return for each module with seeded mistakes the test files that see them, as paths in tests/."""
    found: dict[str, list[str]] = {}
    for mistake in MISTAKES:
        found.setdefault(mistake.file.removeprefix("engine/"), []).extend(
            test.partition("::")[0].removeprefix("tests/") for test in mistake.caught_by)
    return found


def row_of(module: str) -> str:
    """Return the key of the first row of `OTHERS` that fits a module, given as a path in engine/; '' if none fits."""
    return next((row for row in OTHERS if any(fnmatchcase(module, pattern) for pattern in row.split())), "")


def main(arguments: list[str]) -> int:
    """Print the tests of modules, given as paths from the root or in engine/; return 1 if one is no module."""
    missing = 0
    for argument in arguments:
        module = argument.removeprefix("./").removeprefix("engine/")
        if (ENGINE / module).is_file():
            print(*(f"tests/{test}" for test in files_of(module)), sep="\n")
        else:
            print(f"{argument} is no module of the engine", file=sys.stderr)
            missing = 1
    return missing


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
