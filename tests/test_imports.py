"""Imports run one way, and `import engine` stays light."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import engine

PACKAGE = Path(engine.__file__).parent

LEVELS = [
    {"errors"},
    {"config"},
    {"groups", "batch", "cpus"},
    {"parameters"},
    {"packing"},
    {"weights"},
    {"families"},
    {"model"},
    {"quantize"},
    {"backends"},
    {"ops"},
    {"encoder", "pooling", "heads", "text", "peak"},
    {"engine"},
    {"bench", "compare"},
    {"__init__"},
    {"cli"},
    {"__main__"},
]
"""A module imports from lower levels only, or from its own folder."""

LEVEL = {name: i for i, names in enumerate(LEVELS) for name in names}


def own_imports(path):
    """Dotted names below the package that a file imports, at its top or inside a function."""
    package = ["engine", *path.relative_to(PACKAGE).parent.parts]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            full = [*base, *(node.module.split(".") if node.module else [])]
            if full[0] == "engine":
                yield from [full[1:]] if len(full) > 1 else [[alias.name] for alias in node.names]
        elif isinstance(node, ast.Import):
            yield from (alias.name.split(".")[1:] for alias in node.names if alias.name.split(".")[0] == "engine")


def test_imports_run_one_way():
    wrong = []
    for path in sorted(PACKAGE.rglob("*.py")):
        own = path.relative_to(PACKAGE).with_suffix("").parts[0]
        assert own in LEVEL, f"say in LEVELS where {own} stands"
        for name in own_imports(path):
            target = name[0] if name and name[0] in LEVEL else "__init__"
            if target != own and LEVEL[target] >= LEVEL[own]:
                wrong.append(f"{path.relative_to(PACKAGE)} imports {target}")
    assert not wrong


def test_import_is_light():
    code = "import json, sys, engine; print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))"
    output = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    loaded = set(json.loads(output))
    assert "numpy" in loaded
    assert not loaded & {"numba", "cupy", "torch", "tokenizers", "tqdm", "llvmlite", "zipfile", "multiprocessing"}
