"""table.pxd alone describes the kernel table: what Python makes of it is what Cython has compiled."""

import ast
import ctypes
import inspect
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from engine.backends.cpu.native import layout, native
from engine.backends.cpu.native.native import product_name
from engine.backends.cython_cpu import CythonBackend, isa
from engine.base.errors import BackendUnavailable
from engine.model import config
from engine.model.precision import CACHED, COMPUTED, LOADABLE

from ...tools.paths import ROOT

BACKENDS = ROOT / "engine" / "backends"


def test_every_struct_has_the_size_that_was_compiled():
    assert {name: ctypes.sizeof(made) for name, made in layout.structures().items()} == native.struct_sizes()


@pytest.mark.parametrize("name", [name for name in isa.INSTRUCTION_SETS if isa.why_not(name) is None])
def test_a_table_reads_as_compiled_code_reads_it(name):
    """The fields of a table and of its rows, through ctypes."""
    kernels = isa.load(name)
    table = layout.table_in(kernels.capsule)
    assert [ctypes.string_at(table.isa).decode(), table.VL, table.NR, table.MR, bool(table.fused)] == [
        kernels.isa, kernels.VL, kernels.NR, kernels.MR, kernels.fused]
    names = {"fma": {"float32"}, "int16_vectors": {"int16"}, "bfloat16": {"bfloat16", "bfloat16_weights"}}
    for name, place in layout.PRODUCT_PLACES.items():
        assert ctypes.string_at(table.products[place].name).decode() in names.get(name, {name})
    for precision in COMPUTED:
        product = kernels.product(precision)
        row = table.products[layout.PRODUCT_PLACES[product_name(precision, False)]]
        for field in ("depth_step", "operand_bytes", "strip", "block", "hidden_columns", "fresh_depth", "shared",
                      "bundle", "operands_depth", "code_zero"):
            assert getattr(row, field) == getattr(product, field), field
        assert [bool(row.approximates), bool(row.bounded), row.multiply is not None, row.attend_rows is not None] == [
            product.approximates, product.needs_bound, product.exists, product.attends_rows]


def test_names_of_python_are_those_of_the_table():
    assert layout.STORAGE.keys() == set(COMPUTED) >= set(CACHED)
    assert layout.ACTIVATIONS.keys() == set(config.ACTIVATIONS)
    assert layout.PRODUCT_PLACES.keys() == {
        product_name(precision, decodes, portable) for precision in {*COMPUTED, *LOADABLE}
        for decodes in (False, True) for portable in (False, True)}


def test_a_description_is_read():
    enums, structs, functions = layout.read("""# A comment

cdef enum Kind:
    # About the kinds
    ONE
    SEVEN = 7   # (a comment)
    EIGHT

cdef enum:
    SIZE = 16

ctypedef int (*Look)(const float* x, Py_ssize_t n,
                     void* more) noexcept nogil

cdef struct Row:
    const unsigned char* bytes

    Row* rows[SIZE]
    double (*run)() noexcept nogil
    void (*see)(const Row* row,
                int n) noexcept nogil
""")
    assert enums == {"Kind": {"ONE": 0, "SEVEN": 7, "EIGHT": 8}, "": {"SIZE": 16}}
    assert structs == {"Row": (
        layout.Member("bytes", "unsigned char*"), layout.Member("rows", "Row*", "SIZE"),
        layout.Member("run", "double", arguments=()), layout.Member("see", "void", arguments=("Row*", "int")))}
    assert functions == {"Look"}


DECLARED = """cdef enum:
    PART = 128

ctypedef void (*Look)(int n) noexcept nogil

cdef struct Row:
    int n
    float* x
    void (*see)(const Row* row, int n) noexcept nogil
"""


@pytest.mark.parametrize(("old", "new"), [
    ("PART = 128", "PART = 64"), ("int n\n", "int m\n"), ("    int n\n    float* x\n", "    float* x\n    int n\n"),
    ("float* x", "int* x"), ("row, int n", "row, float n"), ("Look", "See"), ("    float* x\n", ""),
])
def test_the_name_of_a_table_changes_with_what_is_declared(old, new):
    name = layout.name_of(layout.read(DECLARED))
    assert old in DECLARED
    assert layout.name_of(layout.read(DECLARED.replace(old, new))) != name
    assert layout.name_of(layout.read("# A comment\n" + DECLARED.replace("int n\n", "int n   # how many\n"))) == name


def named(table, name):
    """Return a capsule of another name with a kernel table; whoever keeps `name` keeps its address."""
    new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    return new(("PyCapsule_New", ctypes.pythonapi))(ctypes.addressof(table), name, None)


def test_kernels_that_were_built_before_the_table_changed_are_refused(monkeypatch):
    """Nothing reads such a table: its fields lie elsewhere."""
    table, old = layout.structures()["KernelTable"](), b"engine.KernelTable.of_yesterday"
    with pytest.raises(BackendUnavailable, match=r"not built from this table\.pxd.*of_yesterday.*run make test"):
        native.Kernels(named(table, old))
    isas = [name for name in isa.INSTRUCTION_SETS if isa.why_not(name) is None]
    monkeypatch.setattr(isa, "import_module", lambda name: SimpleNamespace(table=named(table, old)))
    monkeypatch.setattr(isa, "load", isa.load.__wrapped__)
    monkeypatch.setenv("ENGINE_ISA", isas[-1])
    assert "of_yesterday" in CythonBackend().unavailable()
    monkeypatch.undo()
    monkeypatch.setattr(native, "TABLE_NAME", b"engine.KernelTable.of_tomorrow")
    with pytest.raises(BackendUnavailable, match=r"describes engine\.KernelTable\.of_tomorrow: the kernels have "):
        native.Kernels(isa.load(isas[-1]).capsule)


@pytest.mark.parametrize("line", ["float** x", "float x, y", "int x = 3", "void (*f)(float) noexcept nogil",
                                  "void (*f)(float x) nogil"])
def test_what_it_cannot_read_is_refused(line):
    with pytest.raises(ValueError, match=r"cannot read this part of table\.pxd: "):
        layout.read(f"cdef struct Row:\n    int n\n    {line}\n")
    with pytest.raises(ValueError, match="cannot read"):
        layout.read(f"cdef struct Row:\n    int n\n\n{line}\n")


def stated(body):
    """Yield the names of functions, methods and attributes in the code of a .pyi file, and the functions' arguments."""
    for node in body:
        if isinstance(node, ast.FunctionDef):
            is_property = any(isinstance(each, ast.Name) for each in node.decorator_list)
            names = [each.arg for each in (*node.args.args, *node.args.kwonlyargs)]
            yield node.name, None if is_property or node.name == "__init__" else names
        elif isinstance(node, ast.AnnAssign):
            yield node.target.id, None


def test_the_types_of_the_native_module_name_what_it_has():
    """What native.pyi says of functions, methods, attributes and the names of arguments."""
    tree = ast.parse(Path(native.__file__).with_name("native.pyi").read_text(encoding="utf-8"))
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    places = [(native, tree.body), *((getattr(native, node.name), node.body) for node in classes)]
    assert len(classes) > 7
    for place, body in places:
        said = dict(stated(body))
        for name, arguments in said.items():
            found = getattr(place, name)
            assert arguments is None or list(inspect.signature(found).parameters) == arguments, name
        if place is not native:
            assert {name for name in vars(place) if not name.startswith("_")} <= said.keys(), place


def test_the_recipe_of_a_precision_names_files_that_are_there():
    text = (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8")
    recipe = text.split("**A precision**")[1].split("**A backend.**")[0]
    named = re.findall(r"`([\w/.]+\.(?:pxi|pxd|pyx|py|h|md))`", recipe)
    places = (ROOT, ROOT / "engine", BACKENDS)
    assert len(named) > 20
    assert not [name for name in named if not any((place / name).is_file() for place in places)]
