"""Each function of the compiled code says first what its name does not: a formula, shapes, or why it is there."""

import re

from ..tools.paths import ROOT

FUNCTION = re.compile(r"(?:cdef|cpdef|def)\s+(?!class|struct|enum|extern|union)[^=]*?\b(\w+)\(")


def functions(lines):
    """Yield the name of each function, and the line behind its signature."""
    at = 0
    while at < len(lines):
        if match := FUNCTION.match(lines[at].strip()):
            while not re.search(r":\s*(#.*)?$", lines[at]):
                at += 1
            yield match[1], lines[at + 1].strip()
        at += 1


def says_something(name, line):
    """Whether a line is a comment, or begins a docstring, with two words or more that are not those of the name."""
    words = set(re.findall(r"\w+", line.lower())) - set(name.lower().split("_"))
    return line.startswith(("#", '"""')) and len(words) > 1


def test_each_function_has_a_first_comment():
    found = [(file.name, *function) for pattern in ("*.pxi", "*.pyx") for file in (ROOT / "engine").rglob(pattern)
             for function in functions(file.read_text(encoding="utf-8").split("\n"))]
    assert len(found) > 400
    assert not [f"{file}: {name}" for file, name, line in found if not says_something(name, line)]


def test_what_does_not_count():
    lines = ["cdef inline int bytes_of(int storage,", "                         int n) noexcept nogil:",
             "    return 4", "def work(x):  # a", "    # The work.", "cdef float x = f(2)", "cdef void run() nogil:",
             "    # Run one layer."]
    assert [(name, says_something(name, line)) for name, line in functions(lines)] == [
        ("bytes_of", False), ("work", False), ("run", True)]
