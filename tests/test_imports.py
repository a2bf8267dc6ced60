"""Imports run one way, between the levels of the package and between its backends, and `import engine` stays light."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import engine

PACKAGE = Path(engine.__file__).parent
BACKENDS = PACKAGE / "backends"
TESTS = Path(__file__).parent

LEVELS = [
    {"lazy"},
    {"errors", "installation", "positions", "precision", "program"},
    {"checks", "distances", "kinds", "layout", "logits", "plot"},
    {"config"},
    {"architectures"},
    {"groups", "batch", "cpus", "dense", "resampling", "words"},
    {"stems"},
    {"parameters"},
    {"packing", "generation"},
    {"outputs"},
    {"weights"},
    {"vocabularies", "wav"},
    {"endings", "families", "growth", "pairs"},
    {"model"},
    {"quantize", "sequence_npz"},
    {"backends", "converted", "outline"},
    {"audio", "ops", "sequences"},
    {"pooling", "text", "peak", "segments"},
    {"encoding", "accuracy", "languages", "sources", "recordings"},
    {"engine", "generator", "sounds"},
    {"reranker", "transcriber"},
    {"bench", "compare", "generating_cli", "transcribing_cli"},
    {"__init__"},
    {"cli"},
    {"__main__"},
]
"""Modules and folders of the package, the lowest level first. Each imports from lower levels only, or from itself.

Add a new module to the set of an existing level, or as a level of its own.
"""

LEVEL = {name: i for i, names in enumerate(LEVELS) for name in names}

BACKEND_IMPORTS = {
    "reference": set(),
    "cython_cpu": set(),
    "numba_cpu": {"cython_cpu"},
    "numba_cuda": set(),
}
"""The other backends that each backend may import. All may import the modules directly in backends/."""

KNOWN_EXCEPTIONS: set[tuple[str, str]] = set()
"""Pairs (backend, imported backend) that break the rule. The aim is to have none."""


def imported_names(path, root):
    """Yield each import of a file, at its top or inside a function, as the list of the parts of a dotted name.

    root: the folder of the package that the file is in. `from a.b import c` gives [a, b, c], even if c is not a module.
    """
    package = [root.name, *path.relative_to(root).parent.parts]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            base = [*base, *(node.module.split(".") if node.module else [])]
            yield from ([*base, alias.name] for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name.split(".") for alias in node.names)


def modules_in(folder):
    """Return the names of the modules and packages that lie directly in a folder."""
    return {path.stem for path in folder.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}


def backend_of(name):
    """Return the backend that contains a dotted name, or None."""
    return name[2] if name[:2] == ["engine", "backends"] and len(name) > 2 and name[2] in BACKEND_IMPORTS else None


def imports_between_backends():
    """Return the set of pairs (backend, other backend that it imports)."""
    return {(backend, other)
            for backend in BACKEND_IMPORTS
            for path in (BACKENDS / backend).rglob("*.py")
            for other in map(backend_of, imported_names(path, PACKAGE))
            if other not in (None, backend)}


def test_levels_name_every_module_once_and_nothing_else():
    assert sum(map(len, LEVELS)) == len(LEVEL), "a name is in two levels"
    assert set(LEVEL) == modules_in(PACKAGE), "LEVELS must name the modules that exist, and no others"


def test_imports_run_one_way():
    wrong = []
    for path in sorted(PACKAGE.rglob("*.py")):
        own = path.relative_to(PACKAGE).with_suffix("").parts[0]
        for package, *name in imported_names(path, PACKAGE):
            target = name[0] if name and name[0] in LEVEL else "__init__"
            if package == "engine" and target != own and LEVEL[target] >= LEVEL[own]:
                wrong.append(f"{path.relative_to(PACKAGE)} imports {target}")
    assert not wrong


def test_backends_import_only_the_backends_that_they_may():
    folders = {path.name for path in BACKENDS.iterdir() if (path / "__init__.py").exists()}
    assert set(BACKEND_IMPORTS) == folders, "BACKEND_IMPORTS must name the backends that exist, and no others"
    allowed = {(backend, other) for backend, others in BACKEND_IMPORTS.items() for other in others}
    found = imports_between_backends()
    assert found - allowed - KNOWN_EXCEPTIONS == set()
    assert KNOWN_EXCEPTIONS - found == set(), "an exception is no longer needed: remove it from KNOWN_EXCEPTIONS"


def test_no_test_module_imports_another():
    """Code that several test modules need belongs in a module without tests, for example tests/plans.py."""
    test_modules = {path.stem for path in TESTS.rglob("test_*.py")}
    wrong = [f"{path.relative_to(TESTS)} imports {'.'.join(name)}"
             for path in sorted(TESTS.rglob("*.py"))
             for name in imported_names(path, TESTS) if test_modules & {*name}]
    assert not wrong


def test_import_is_light():
    code = "import json, sys, engine; print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))"
    output = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    loaded = set(json.loads(output))
    assert "numpy" in loaded
    assert not loaded & {"numba", "cupy", "torch", "tokenizers", "tqdm", "llvmlite", "zipfile", "multiprocessing"}
