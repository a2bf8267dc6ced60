"""Imports run one way, between packages, modules and backends, private names stay at home, and importing is light.

engine/README.md holds the map that these tests read: the order of the levels and the listing of the packages.
"""

import ast
import json
import re
import subprocess
import sys
from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import engine

from ..tools.paths import ROOT, TESTS

PACKAGE = Path(engine.__file__).parent
BACKENDS = PACKAGE / "backends"
MAP = PACKAGE / "README.md"

BACKEND_IMPORTS = {
    "reference": set(),
    "cpu": set(),
    "cython_cpu": {"cpu"},
    "numba_cpu": {"cpu", "cython_cpu"},      # whose kernels fill what Numba leaves
    "numba_cuda": {"reference"},             # whose definition computes the attention weights that a caller observes
}
"""The other backends that each backend may import. All may import the modules directly in backends/."""

MOST_LENT = 9
"""The most modules that may have a single importer which lies in another package: three file formats, the start of the
server, and what a package is there for, such as one of the heads, the verification of a job or a measure."""


def levels():
    """Return the levels that engine/README.md states, the lowest first: a list of sets of packages.

    The modules that lie directly in the package stand on two levels above all.
    """
    [line] = re.findall(r"^    (\w[\w, ]*(?: < \w[\w, ]*)+)$", MAP.read_text(encoding="utf-8"), re.MULTILINE)
    return [*(set(names.split(", ")) for names in line.split(" < ")), {"__init__"}, {"__main__"}]


def listed_packages():
    """Return the folders that the listing in engine/README.md names, as paths relative to the package."""
    [listing] = re.findall(r"^```text\nengine/\n(.*?)^```", MAP.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    found, trail = [], []
    for indent, name in re.findall(r"^( +)(\w+)/", listing, re.MULTILINE):
        trail = [*trail[: len(indent) // 4 - 1], name]
        found.append("/".join(trail))
    return found


@dataclass(frozen=True)
class Source:
    """What a file imports, at its top or inside a function, and which attributes of names it reads."""

    imports: list[tuple[tuple[str, ...], bool]]
    """The parts of each dotted name, and whether the import is under `if TYPE_CHECKING:`, which no program runs."""
    attributes: list[tuple[str, str]]
    """The name and the attribute of each `name.attribute`."""
    bound: set[str]
    """Each name that is bound in the file, in a function or a class, too."""


@cache
def read(path, root):
    """Return the `Source` of a file of a package, whose folder is root; each file is parsed once, and no tree is kept.

    `from a.b import c` gives (a, b, c), even if c is not a module.
    """
    package = [root.name, *path.relative_to(root).parent.parts]
    nodes = [*ast.walk(ast.parse(path.read_text(encoding="utf-8")))]
    typed = {inner for node in nodes if isinstance(node, ast.If) and isinstance(node.test, ast.Name)
             and node.test.id == "TYPE_CHECKING" for statement in node.body for inner in ast.walk(statement)}
    imports, attributes, bound = [], [], set()
    for node in nodes:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            bound.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            bound.add(node.id)
        elif isinstance(node, ast.alias):
            bound.add((node.asname or node.name).partition(".")[0])
        if isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            base = [*base, *(node.module.split(".") if node.module else [])]
            imports += [((*base, alias.name), node in typed) for alias in node.names]
        elif isinstance(node, ast.Import):
            imports += [(tuple(alias.name.split(".")), node in typed) for alias in node.names]
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            attributes.append((node.value.id, node.attr))
    return Source(imports, attributes, bound)


def imported_names(path, root, for_types=True):
    """Yield each import of a file as the parts of a dotted name. for_types: whether those for types alone count."""
    return (name for name, typed in read(path, root).imports if for_types or not typed)


def modules_in(folder):
    """Return the names of the modules and packages that lie directly in a folder."""
    return {path.stem for path in folder.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}


@cache
def module_of(name):
    """Return the file of the module that a dotted name is in or is, or None outside of the engine."""
    if name[0] != PACKAGE.name:
        return None
    for size in range(len(name), 0, -1):
        path = PACKAGE.joinpath(*name[1:size])
        if path.with_suffix(".py").is_file() and size > 1:
            return path.with_suffix(".py")
        if (path / "__init__.py").is_file():
            return path / "__init__.py"
    return None


def backend_of(name):
    """Return the backend that contains a dotted name, or None."""
    return name[2] if name[:2] == ("engine", "backends") and len(name) > 2 and name[2] in BACKEND_IMPORTS else None


def imports_between_backends():
    """Return the set of pairs (backend, other backend that it imports)."""
    return {(backend, other)
            for backend in BACKEND_IMPORTS
            for path in (BACKENDS / backend).rglob("*.py")
            for other in map(backend_of, imported_names(path, PACKAGE))
            if other not in (None, backend)}


def lent_modules():
    """Return (module, its only importer) of each module that nobody imports but one module of another package."""
    importers = defaultdict(set)
    for path in PACKAGE.rglob("*.py"):
        for name in imported_names(path, PACKAGE):
            found = module_of(name)
            if found not in (None, path):
                importers[found].add(path)
    return sorted((str(module.relative_to(PACKAGE)), str(path.relative_to(PACKAGE)))
                  for module, paths in importers.items() if len(paths) == 1
                  for path in paths
                  if module.name != "__init__.py" and path.parent != PACKAGE
                  and module.relative_to(PACKAGE).parts[0] != path.relative_to(PACKAGE).parts[0])


def test_the_map_names_the_packages_that_exist():
    built = {".so", ".zip"}     # compiled modules, and the archives of make cubins
    folders = {path for path in PACKAGE.rglob("*")
               if path.is_dir() and any(file.is_file() and file.suffix not in built for file in path.iterdir())}
    on_disk = {str(path.relative_to(PACKAGE)) for path in folders if path.name != "__pycache__"}
    assert sorted(listed_packages()) == sorted(on_disk)
    assert sorted(name for names in levels() for name in names) == sorted(modules_in(PACKAGE))


def test_nothing_lies_beside_the_packages():
    assert {path.name for path in PACKAGE.glob("*.py")} == {"__init__.py", "__main__.py"}


def test_imports_run_one_way():
    level = {name: i for i, names in enumerate(levels()) for name in names}
    wrong = []
    for path in sorted(PACKAGE.rglob("*.py")):
        own = path.relative_to(PACKAGE).with_suffix("").parts[0]
        for package, *name in imported_names(path, PACKAGE):
            target = name[0] if name and name[0] in level else "__init__"
            if package == "engine" and target != own and level[target] >= level[own]:
                wrong.append(f"{path.relative_to(PACKAGE)} imports {target}")
    assert not wrong


def test_no_modules_import_each_other():
    """Neither directly nor by way of others, at the top of a file or inside a function."""
    graph = {path: {module for name in imported_names(path, PACKAGE, for_types=False)
                    if (module := module_of(name)) not in (None, path)} for path in PACKAGE.rglob("*.py")}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(str(path.relative_to(PACKAGE)) for path in reversed(error.args[1])))


def test_backends_import_only_the_backends_that_they_may():
    folders = {path.name for path in BACKENDS.iterdir() if (path / "__init__.py").exists()}
    assert set(BACKEND_IMPORTS) == folders, "BACKEND_IMPORTS must name the backends that exist, and no others"
    allowed = {(backend, other) for backend, others in BACKEND_IMPORTS.items() for other in others}
    assert imports_between_backends() - allowed == set()


def test_no_private_name_crosses_a_package():
    """Neither `from other import _name` nor `module._name` of a module that lies in another folder."""
    wrong = []
    for path in sorted(PACKAGE.rglob("*.py")):
        for name in imported_names(path, PACKAGE):
            home = module_of(name)
            if home and home.parent != path.parent and any(re.match(r"_(?!_)", part) for part in name[1:]):
                wrong.append(f"{path.relative_to(PACKAGE)} imports {'.'.join(name)}")
        modules = {name[-1] for name in imported_names(path, PACKAGE) if (home := module_of(name))
                   and home.parent != path.parent and name[-1] in (home.stem, home.parent.name)}
        wrong += [f"{path.relative_to(PACKAGE)} uses {owner}.{name}" for owner, name in read(path, PACKAGE).attributes
                  if re.match(r"_(?!_)", name) and owner in modules]
    assert not wrong


def test_few_modules_serve_one_module_of_another_package_alone():
    lent = lent_modules()
    print(*(f"{module} serves {importer} alone" for module, importer in lent), sep="\n")
    assert len(lent) <= MOST_LENT


def without_a_home(name):
    """Return whether nothing in the repository binds the last part of the dotted name of an import from it.

    Compiled modules and packages that give their names when asked (`__getattr__`) are believed.
    """
    place, last = ROOT.joinpath(*name[:-1]), name[-1]
    if (place / last).is_dir() or any(place.glob(f"{last}.py*")) or place.with_suffix(".pyx").is_file():
        return False
    source = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    return not (source.is_file() and {last, "__getattr__", "*"} & read(source, ROOT / name[0]).bound)


def test_programs_outside_of_the_tests_import_what_exists():
    """mypy sees it for the package, and tests for what they run; nothing else opens a benchmark or a golden maker."""
    roots = [ROOT / name for name in ("asv_bench", "tests", "tools")]
    wrong = {f"{path.relative_to(ROOT)} imports {'.'.join(name)}"
             for root in roots for path in root.rglob("*.py") for name in imported_names(path, root)
             if len(name) > 1 and name[0] in {PACKAGE.name, *(root.name for root in roots)} and without_a_home(name)}
    assert not wrong


def test_no_test_module_imports_another():
    """Code that several test modules need belongs in a module without tests, for example tests/tools/plans.py."""
    test_modules = {path.stem for path in TESTS.rglob("test_*.py")}
    wrong = [f"{path.relative_to(TESTS)} imports {'.'.join(name)}"
             for path in sorted(TESTS.rglob("*.py"))
             for name in imported_names(path, TESTS) if test_modules & {*name}]
    assert not wrong


def test_import_is_light():
    code = """
import json, sys
import engine
print(json.dumps([*sys.modules]))
engine.load, engine.Engine, engine.Generator, engine.Reranker, engine.Transcriber
print(json.dumps([*sys.modules]))
"""
    run = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    alone, loaded = ({*json.loads(line)} for line in run.stdout.splitlines())
    assert {name for name in alone if name.startswith("engine.")} == {
        "engine.base", "engine.base.errors", "engine.base.version"}
    assert "numpy" not in alone
    assert "numpy" in loaded
    assert not loaded & {"numba", "cupy", "torch", "tokenizers", "tqdm", "llvmlite", "zipfile", "multiprocessing",
                         "engine.adapters"}


DOUBLE_NAMES = {
    "Device": "that of PyTorch, for programs of sentence-transformers, and the GPU",
    "Embed": "what Ray Data calls the class that embeds, and the operation of a program",
    "Model": "that of sentence-transformers, and ours",
}
"""Names that two classes may have, each with its reason: at most five."""


def test_a_name_means_one_class():
    found = defaultdict(list)
    for path in PACKAGE.rglob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(path.relative_to(PACKAGE).as_posix())
    assert {name for name, paths in found.items() if len(paths) > 1} == DOUBLE_NAMES.keys()
    assert len(DOUBLE_NAMES) <= 5
