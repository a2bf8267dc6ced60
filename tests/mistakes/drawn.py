"""Draw mistakes: one token of one module in engine/ in the place of another, for `python -m tests.mistakes --draw`."""

import io
import random
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

from engine.backends.cython_cpu import isa

from ..map import ENGINE, files_of, modules
from .mistake import Mistake

OTHERS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "+": "-", "-": "+", "*": "+", "//": "*",
          "/": "*", "%": "*", "+=": "-=", "-=": "+=", "<<": ">>", ">>": "<<", "and": "or", "or": "and", "&&": "||",
          "||": "&&", "True": "False", "False": "True", "is": "is not", "in": "not in", "not": "", "min": "max",
          "max": "min", "any": "all", "all": "any", "break": "continue", "continue": "break"}  # fmt: skip
"""Tokens, and what stands in the place of each; a number becomes the next one."""
NATIVE = re.compile(r"(?<![\w.])(?:\d+(?![\w.])|and\b|or\b|not\b|min\b|max\b|break\b|continue\b)"
                    r"|(?<= )(?:<=|>=|==|!=|\+=|-=|&&|\|\||<<|>>|//|[-+*/%<>])(?= )")
"""Tokens of Cython and C that may be changed: operators stand between blanks there, and pointers do not."""


def draw(count: int, seed: int) -> list[Mistake]:
    """Return changes of one token each, drawn from all tokens of all modules alike."""
    places = [(module, *place) for module in modules() for place in _places(ENGINE / module)]
    return [_mistake(*place) for place in random.Random(seed).sample(places, count)]


def _places(path: Path) -> Iterator[tuple[int, int, str]]:
    """Yield the line, the column and the text of each token of a file that may be changed."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        for number, line in enumerate(text.split("\n"), 1):
            code = re.split(r"#(?!define|if)|//", line)[0]
            if not re.match(r"\s*(#|\*|/\*|c?import|from|include|\"\"\")", code):
                yield from ((number, found.start(), found[0]) for found in NATIVE.finditer(code))
        return
    last = ""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        before, last = last, token.string
        signs = before == "*" or (before in "([{," and token.string in "*-")      # of what follows
        if signs or token.line.lstrip().startswith(("import ", "from ", "def ", "@")):
            continue
        if token.string in OTHERS or (token.type == tokenize.NUMBER and token.string.isdigit()):
            yield *token.start, token.string


def _mistake(module: str, line: int, column: int, token: str) -> Mistake:
    """Return a change of a token as a mistake, which the tests of its module have to see."""
    source = (ENGINE / module).read_text(encoding="utf-8")
    wrong = OTHERS[token] if token in OTHERS else str(int(token) + 1)
    lines = source.split("\n")
    lines[line - 1] = lines[line - 1][:column] + wrong + lines[line - 1][column + len(token):]
    what = f"line {line}: {token} becomes {wrong or 'nothing'} in {source.split(chr(10))[line - 1].strip()}"
    tests = tuple(f"tests/{test}" for test in files_of(module))
    return Mistake(what, f"engine/{module}", source, "\n".join(lines), tests, "", _built(module), None,
                   "numba_cuda" in module)  # fmt: skip


def _built(module: str) -> tuple[str, ...]:
    """Return the extension modules that a source is part of, of kernels those for the CPU at hand."""
    path = Path(module)
    if path.suffix == ".py":
        return ()
    if "cython_cpu" not in module:
        return ("native",) if "cpu/native" in module else (path.stem,)
    own = {"portable": "baseline", "avx2": "avx2"}.get(path.stem)
    return (f"kernels_{own or isa.chosen().isa}",)
