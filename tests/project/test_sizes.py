"""Functions stay short: none of the engine has more than 100 lines, and few have more than 60.

A file may be as long as its idea needs. With -s the test prints the ten longest files and functions. Lines of native
sources are as short as those of Python, which ruff checks.
"""

import ast
import re

from ..tools.paths import ROOT

ENGINE = ROOT / "engine"
SUFFIXES = {".py", ".pyx", ".pxi", ".h", ".c"}
NATIVE = {".pyi", ".pyx", ".pxi", ".pxd", ".h", ".c"}

MOST_LINES = 100
LONG = 60
MOST_LONG = 8

CYTHON_FUNCTION = re.compile(r"( *)(?:(?:cdef|cpdef|async)\b.*|def )\b(\w+)(?:\[[^\]]*\])?\(.*")
C_FUNCTION = re.compile(r"[A-Za-z_].*?(\w+)\([^;]*$")
MACRO = re.compile(r"#\s*define (\w+)")


def python_functions(text):
    """Yield the name and the number of lines of each function; an inner function is part of its outer one."""
    nodes = [ast.parse(text)]
    while nodes:
        for node in ast.iter_child_nodes(nodes.pop()):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield node.name, node.end_lineno - node.lineno + 1
            else:
                nodes.append(node)


def cython_functions(text):
    """Yield the name and the number of lines of each function of a Cython source file."""
    lines = text.splitlines()
    for start, line in enumerate(lines):
        found = CYTHON_FUNCTION.fullmatch(line)
        if not found:
            continue
        indent = len(found[1])
        body = start
        while not lines[body].partition("  #")[0].rstrip().endswith(":"):       # the arguments may take several lines
            body += 1
            if body == len(lines) or (lines[body].strip() and not lines[body].startswith(found[1] + " ")):
                break                                                            # a declaration, which has no body
        else:
            end = body
            for i in range(body + 1, len(lines)):
                if lines[i].strip() and len(lines[i]) - len(lines[i].lstrip()) <= indent:
                    break
                end = i if lines[i].strip() else end
            yield found[2], end - start + 1


def c_functions(text):
    """Yield the name and the number of lines of each function, and of each macro of several lines, of a C file."""
    lines = text.splitlines()
    for start, line in enumerate(lines):
        end = start
        if (found := MACRO.match(line)) and line.endswith("\\"):
            while lines[end].endswith("\\"):
                end += 1
        elif found := C_FUNCTION.match(line):
            while end < len(lines) and lines[end].rstrip()[-1:] not in ("{", ";", "}"):
                end += 1
            if end == len(lines) or not lines[end].rstrip().endswith("{"):
                continue
            while lines[end] != "}":
                end += 1
        else:
            continue
        yield found[1], end - start + 1


FUNCTIONS = {".py": python_functions, ".pyx": cython_functions, ".pxi": cython_functions, ".h": c_functions,
             ".c": c_functions}


def source_files(folder=ENGINE, suffixes=SUFFIXES):
    """Return the source files of a folder, without the C files that Cython made of .pyx files."""
    files = sorted(path for path in folder.rglob("*") if path.suffix in suffixes)
    return [path for path in files if path.suffix != ".c" or not path.with_suffix(".pyx").exists()]


def functions():
    """Return (lines, file, name) of every function, the longest first."""
    return sorted(((lines, str(path.relative_to(ENGINE)), name) for path in source_files()
                   for name, lines in FUNCTIONS[path.suffix](path.read_text(encoding="utf-8"))), reverse=True)


def test_functions_are_short():
    found = functions()
    files = sorted(((len(path.read_text(encoding="utf-8").splitlines()), str(path.relative_to(ENGINE)))
                    for path in source_files()), reverse=True)
    print("the longest files:", *(f"{lines:5} {file}" for lines, file in files[:10]), sep="\n")
    print("the longest functions:", *(f"{lines:5} {file}: {name}" for lines, file, name in found[:10]), sep="\n")
    assert len(files) > 200
    assert len(found) > 1500
    assert not [entry for entry in found if entry[0] > MOST_LINES]
    assert len([entry for entry in found if entry[0] > LONG]) <= MOST_LONG


def test_lines_of_native_sources_are_as_short_as_those_of_python():
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    limit = int(re.search(r"^line-length = (\d+)$", project, re.MULTILINE)[1])
    files = [*source_files(ENGINE, NATIVE), *source_files(ROOT / "tests", NATIVE)]
    assert len(files) >= 80
    assert not [f"{path.relative_to(ROOT)}:{number}" for path in files
                for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1) if len(line) > limit]


PYTHON = """
def f(a,
      b):
    def inner():
        return a
    return inner


class C:
    def m(self):
        return 1
"""

CYTHON = """
cdef extern from "a.h":
    int g(int a)


cdef inline int f(int a,
                  int b) noexcept nogil:
    # why
    return a


cdef class C:
    def m(self):
        return 1

    cdef int k(self):
        pass
"""

C = """
#define M(a) \\
    (a)
#define N 1
int declared(int a);
static inline int f(int a,
        int b) {
    if (a) {
        b();
    }
    return 1;
}

int g(void)
{
    return 2;
}
"""


def test_functions_of_each_language_are_measured():
    assert sorted(python_functions(PYTHON)) == [("f", 5), ("m", 2)]
    assert list(cython_functions(CYTHON)) == [("f", 4), ("m", 2), ("k", 2)]
    assert list(c_functions(C)) == [("M", 2), ("f", 7), ("g", 4)]
