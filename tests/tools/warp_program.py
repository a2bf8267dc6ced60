"""Rewrite a kernel, which describes one thread, as a program over the 32 lanes of a warp.

A number that differs between lanes becomes an array [32]; numbers that all lanes share stay as they are. Where lanes
take different branches, the program runs both with a mask of its lanes (`Lanes.mask`): assignments merge, and reads and
writes of memory leave out the other lanes. Loops end for each lane by itself. The restrictions are those of our
kernels: a `return` or `continue` of some lanes is the only statement of its branch, and `break` is not supported.
"""

from __future__ import annotations

import ast
import inspect
import math
import textwrap
from collections.abc import Callable, Iterator
from functools import cache
from types import CodeType, SimpleNamespace
from typing import Any

import numpy as np

WARP = 32


class EmulationError(AssertionError):
    """A kernel made an error, which a GPU might not report."""


class Unset:
    """The value of a variable that has none yet."""


class LocalArray:
    """An array of each lane, `cuda.local.array`: [*shape, 32], filled with 0xAB because a GPU does not clear it."""

    def __init__(self, shape: Any, dtype: Any):
        self.data = np.full((*(shape if isinstance(shape, tuple) else (shape,)), WARP), 0xAB, dtype)

    @property
    def size(self) -> int:
        """Return the number of its elements in a lane."""
        return self.data.size // WARP

    def registers(self) -> list[np.ndarray]:
        """Return its elements, an array [32] each."""
        return list(self.data.reshape(-1, WARP))

    def replace(self, registers: list[np.ndarray]) -> None:
        """Set all elements."""
        self.data[...] = np.array(registers).reshape(self.data.shape)


class Lanes:
    """The lanes of a warp that run a statement together."""

    def __init__(self, threads: np.ndarray, mask: np.ndarray | None = None):
        self.threads = threads
        """The numbers of the lanes in their block, [32]."""
        self.mask = mask
        """The lanes that run, bool [32]; None for all."""

    def active(self) -> int:
        """Return the number of lanes that run."""
        return WARP if self.mask is None else int(np.count_nonzero(self.mask))

    def numbers(self) -> Any:
        """Return the numbers of the lanes that run."""
        return range(WARP) if self.mask is None else np.flatnonzero(self.mask)

    def those(self, *values: Any) -> tuple[np.ndarray, ...]:
        """Return arrays of the values of the lanes that run, one for each value."""
        arrays = (np.broadcast_to(value, WARP) for value in values)
        return tuple(arrays if self.mask is None else (array[self.mask] for array in arrays))

    def converged(self, what: str) -> None:
        """Raise an error unless all lanes run."""
        if self.mask is not None:
            raise EmulationError(f"{what}: {self.active()} of {WARP} lanes run it")

    def first(self) -> int:
        """Return the number of the first thread that runs."""
        return int(self.threads[self.numbers()[0]])

    def each(self, *values: Any) -> Iterator[tuple[int, ...]]:
        """Yield the integers of each lane that runs."""
        columns = [np.broadcast_to(value, WARP) for value in values]
        for lane in self.numbers():
            yield tuple(int(column[lane]) for column in columns)

    def branches(self, condition: Any) -> Iterator[bool]:
        """Yield the outcomes of a condition, each while only the lanes with this outcome run."""
        if not isinstance(condition, np.ndarray):
            yield bool(condition)
            return
        mask, condition = self.mask, condition != 0
        there = condition if mask is None else condition & mask
        count = np.count_nonzero(there)
        if count == self.active() or count == 0:
            yield count > 0
            return
        self.mask = there
        yield True
        self.mask = ~condition if mask is None else mask & ~condition
        yield False
        self.mask = mask

    def choose(self, condition: Any, yes: Callable[[], Any], no: Callable[[], Any]) -> Any:
        """Return `yes() if condition else no()` of each lane."""
        outcomes = {outcome: (yes if outcome else no)() for outcome in self.branches(condition)}
        if len(outcomes) == 1:
            return next(iter(outcomes.values()))
        if isinstance(outcomes[True], tuple):
            return tuple(np.where(condition, *pair) for pair in zip(outcomes[True], outcomes[False], strict=True))
        return np.where(condition, outcomes[True], outcomes[False])

    def both(self, condition: Any, other: Callable[[], Any]) -> Any:
        """Return `condition and other()` of each lane."""
        return self.choose(condition, other, lambda: False)

    def either(self, condition: Any, other: Callable[[], Any]) -> Any:
        """Return `condition or other()` of each lane."""
        return self.choose(condition, lambda: True, other)

    def range(self, *bounds: Any) -> Iterator[Any]:
        """Yield the numbers of a range while the lanes that have not reached its end run."""
        bounds = tuple(self._shared(bound) for bound in bounds)
        if not any(isinstance(bound, np.ndarray) for bound in bounds):
            yield from range(*bounds)
            return
        start, stop, step = bounds if len(bounds) == 3 else (*bounds, 1) if len(bounds) == 2 else (0, *bounds, 1)
        mask, number = self.mask, np.zeros(WARP, np.int64) + start
        while True:
            there = number < stop if mask is None else mask & (number < stop)
            count = np.count_nonzero(there)
            if not count:
                break
            self.mask = None if count == WARP else there
            yield number
            number = number + step
        self.mask = mask

    def _shared(self, number: Any) -> Any:
        """Return the number that all lanes share, or the array of their numbers."""
        if not isinstance(number, np.ndarray):
            return int(number)
        there = number if self.mask is None else number[self.mask]
        return int(there[0]) if (there == there[0]).all() else number

    def repeat(self, condition: Callable[[], Any]) -> Iterator[None]:
        """Yield while the condition is true of a lane, which then runs."""
        mask = self.mask
        while True:
            now = condition()
            if not isinstance(now, np.ndarray):
                if not now:
                    break
            else:
                there = now != 0 if self.mask is None else (now != 0) & self.mask
                if not there.any():
                    break
                self.mask = None if there.all() else there
            yield
        self.mask = mask

    def merge(self, old: Any, new: Any) -> Any:
        """Return the value of a variable after an assignment by the lanes that run."""
        return new if old is Unset or isinstance(new, LocalArray) else np.where(self.mask, new, old)

    def merge_all(self, old: tuple[Any, ...], new: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the values of several variables after an assignment by the lanes that run."""
        return tuple(self.merge(*pair) for pair in zip(old, new, strict=True))

    def load(self, array: Any, index: Any) -> Any:
        """Return array[index] of each lane."""
        if not isinstance(array, (np.ndarray, LocalArray)):
            return array[index]
        data, places, varying = self._places(array, index)
        if isinstance(array, LocalArray) and not varying:
            return data[places].copy()
        if self.mask is None or not varying:
            return data[places]
        result = np.zeros(WARP, data.dtype)
        result[self.mask] = data[self._those(places)]
        return result

    def store(self, array: Any, index: Any, value: Any) -> None:
        """Set array[index] of each lane; where several lanes write one element, the last one's value stays."""
        data, places, varying = self._places(array, index)
        if isinstance(array, LocalArray) and not varying:
            data[places][... if self.mask is None else self.mask] = self._those((value,))[0]
            return
        if varying:
            data[self._those(places)] = self._those((value,))[0]
        else:
            data[places] = self._those((value,))[0][-1] if isinstance(value, np.ndarray) else value

    def _places(self, array: Any, index: Any) -> tuple[np.ndarray, tuple[Any, ...], bool]:
        """Return the numbers of an array, the places of an index in it, and whether lanes have different places."""
        places = index if isinstance(index, tuple) else (index,)
        varying = any(isinstance(place, np.ndarray) for place in places)
        for place in self._those(places) if varying else places:
            if np.min(place) < 0:
                raise IndexError(f"an index of an array is {np.min(place)}")
        if not isinstance(array, LocalArray):
            return array, places, varying
        return array.data, (*places, np.arange(WARP)) if varying else places, varying

    def _those(self, values: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the numbers of the lanes that run."""
        if self.mask is None:
            return values
        return tuple(value[self.mask] if isinstance(value, np.ndarray) else value for value in values)


def _function_of_lanes(plain: Callable[..., Any], lanes: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that is `lanes` if an argument is an array, and otherwise `plain`."""

    def chosen(*values: Any) -> Any:
        return (lanes if any(isinstance(value, np.ndarray) for value in values) else plain)(*values)

    return chosen


def _mathematics(name: str) -> Callable[..., Any]:
    plain = getattr(math, name)
    fast = {"sqrt": np.sqrt, "exp": np.exp, "tanh": np.tanh, "log": np.log}.get(name)

    def lanes(x: np.ndarray) -> np.ndarray:
        x = x.astype(np.float64)
        return np.array([plain(number) for number in x]) if fast is None else fast(x)

    return _function_of_lanes(plain, lanes)


# Python's min and max keep the first number unless the other one is smaller or larger: a NaN stays.
NAMES: dict[str, Any] = {
    "max": _function_of_lanes(max, lambda x, y: np.where(y > x, y, x)),
    "min": _function_of_lanes(min, lambda x, y: np.where(y < x, y, x)),
    "float": _function_of_lanes(float, lambda x: x.astype(np.float64)),
    "int": _function_of_lanes(int, lambda x: x.astype(np.int64)),
}
"""What the builtin functions of kernels are for lanes."""
MATH = SimpleNamespace(**{name: _mathematics(name) for name, value in vars(math).items() if callable(value)},
                       inf=math.inf, pi=math.pi, e=math.e, nan=math.nan)


def warp_program(function: Callable[..., Any], names: dict[str, Any], lanes: Callable[[], Lanes]) -> Callable[..., Any]:
    """Return the function over lanes.

    names: what it looks up besides its own globals; lanes: returns the lanes that run it. A function without source,
    which another one has made, stays as it is, and so may hold no branch on numbers of lanes.
    """
    code = _code(function.__code__)
    made = {**function.__globals__, **NAMES, **names, "_lanes": lanes, "_Unset": Unset}
    made.update((name, MATH) for name, value in made.items() if value is math)
    if code is None:
        rebuilt = type(function)(function.__code__, made, function.__name__, function.__defaults__,
                                 function.__closure__ and tuple(_cell(made[name])
                                                                for name in function.__code__.co_freevars))
        return rebuilt
    exec(code, made)
    result: Callable[..., Any] = made["_program"]
    return result


def _cell(value: Any) -> Any:
    return (lambda: value).__closure__[0]       # type: ignore[index]


@cache
def _code(source: CodeType) -> CodeType | None:
    """Return the code that defines `_program`, or None for a function without source."""
    try:
        lines, first = inspect.getsourcelines(source)
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, SyntaxError):
        return None
    function = tree.body[0]
    if not isinstance(function, ast.FunctionDef):
        return None
    ast.increment_lineno(tree, first - 1)
    made = _Rewriter(function, source.co_filename).definition()
    return compile(made, source.co_filename, "exec")


class _Rewriter(ast.NodeTransformer):
    """Rewrites one function."""

    def __init__(self, function: ast.FunctionDef, file: str):
        self.function, self.file, self.depth = function, file, 0
        self.arguments = [argument.arg for argument in function.args.args]
        stores = [node.id for node in ast.walk(function) if isinstance(node, ast.Name)
                  and isinstance(node.ctx, ast.Store)]
        self.variables = list(dict.fromkeys(stores))

    def definition(self) -> ast.Module:
        """Return the module that defines the function as `_program`."""
        new = [name for name in self.variables if name not in self.arguments]
        start = ["_W = _lanes()", *([" = ".join([*new, "_Unset"])] if new else [])]
        body = [*ast.parse("\n".join(start)).body, *self.block(self.function.body)]
        made = ast.parse(f"def _program({', '.join(self.arguments)}): pass").body[0]
        assert isinstance(made, ast.FunctionDef)
        made.body = body
        made.args.defaults = self.function.args.defaults
        return ast.fix_missing_locations(ast.Module([made], []))

    def error(self, node: ast.AST, what: str) -> EmulationError:
        return EmulationError(f"{self.file}:{getattr(node, 'lineno', '?')}: the emulator does not run {what}")

    def block(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        made: list[ast.stmt] = []
        for i, statement in enumerate(statements):
            if (isinstance(statement, ast.If) and len(statement.body) == 1 and not statement.orelse
                    and (isinstance(statement.body[0], ast.Continue)
                         or (isinstance(statement.body[0], ast.Return) and statement.body[0].value is None))):
                rest = ast.If(statement.test, [ast.Pass()], statements[i + 1:] or [ast.Pass()])
                return [*made, *self.branch(ast.copy_location(rest, statement))]
            result = self.visit(statement)
            made += result if isinstance(result, list) else [result]
        return made

    def branch(self, node: ast.If) -> list[ast.stmt]:
        if self.constant(node.test):
            return [ast.copy_location(ast.If(node.test, self.block(node.body), self.block(node.orelse)), node)]
        name = f"_outcome{self.depth}"
        self.depth += 1
        inner = ast.If(ast.Name(name, ast.Load()), self.block(node.body), self.block(node.orelse))
        self.depth -= 1
        return [self.loop(node, ast.Name(name, ast.Store()), self.call("branches", self.visit(node.test)), [inner])]

    def constant(self, node: ast.expr) -> bool:
        """Return True for an expression of names from outside the function alone, which are no numbers of lanes."""
        names = [part.id for part in ast.walk(node) if isinstance(part, ast.Name)]
        inside = {*self.arguments, *self.variables, "cuda"}
        return not inside & {*names} and not any(isinstance(part, ast.Call) for part in ast.walk(node))

    def call(self, method: str, *arguments: ast.expr) -> ast.Call:
        return ast.Call(ast.Attribute(ast.Name("_W", ast.Load()), method, ast.Load()), [*arguments], [])

    def loop(self, node: ast.stmt, target: ast.expr, iterator: ast.expr, body: list[ast.stmt]) -> ast.stmt:
        return ast.copy_location(ast.For(target, iterator, body, []), node)

    def delayed(self, node: ast.expr) -> ast.Lambda:
        return ast.Lambda(ast.arguments([], [], None, [], [], None, []), self.visit(node))

    def assigned(self, target: ast.expr, value: ast.expr) -> ast.stmt:
        """Return an assignment to a variable or to a tuple of them, by the lanes that run."""
        old = ast.parse(ast.unparse(target), mode="eval").body
        merged = self.call("merge_all" if isinstance(target, ast.Tuple) else "merge", old, value)
        masked = ast.parse("_W.mask is not None", mode="eval").body
        return ast.Assign([target], ast.IfExp(masked, merged, value))

    # The methods below are called by NodeTransformer.
    def visit_If(self, node: ast.If) -> list[ast.stmt]:
        return self.branch(node)

    def visit_For(self, node: ast.For) -> ast.stmt:
        iterator = node.iter
        if isinstance(iterator, ast.Call) and isinstance(iterator.func, ast.Name) and iterator.func.id == "range":
            if not all(map(self.constant, iterator.args)):
                iterator = self.call("range", *map(self.visit, iterator.args))
        elif not self.constant(iterator):
            raise self.error(node, "a loop over other than a range or constants")
        return self.loop(node, node.target, iterator, self.block(node.body))

    def visit_While(self, node: ast.While) -> ast.stmt:
        return self.loop(node, ast.Name("_turn", ast.Store()), self.call("repeat", self.delayed(node.test)),
                         self.block(node.body))

    def visit_Assign(self, node: ast.Assign) -> ast.stmt:
        target, value = node.targets[0], self.visit(node.value)
        if len(node.targets) > 1:
            raise self.error(node, "an assignment to several targets")
        if isinstance(target, ast.Subscript):
            made: ast.stmt = ast.Expr(self.call("store", self.visit(target.value), self.visit(target.slice), value))
        elif isinstance(target, ast.Tuple) and not all(isinstance(part, ast.Name) for part in target.elts):
            if not isinstance(value, ast.Tuple):
                raise self.error(node, "an assignment of a tuple to parts of arrays")
            parts = [ast.Assign([part], number) for part, number in zip(target.elts, node.value.elts, strict=True)]
            return [ast.copy_location(self.visit(ast.copy_location(part, node)), node) for part in parts]
        else:
            made = self.assigned(target, value)
        return ast.copy_location(made, node)

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.stmt:
        read = ast.parse(ast.unparse(node.target), mode="eval").body
        whole = ast.Assign([node.target], ast.BinOp(read, node.op, node.value))
        return self.visit_Assign(ast.copy_location(whole, node))

    def visit_Return(self, node: ast.Return) -> ast.stmt:
        if node is not self.function.body[-1]:
            raise self.error(node, "a return within a branch")
        return self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        if isinstance(node.value, ast.Attribute) and node.value.attr == "shape":
            return node
        return ast.copy_location(self.call("load", self.visit(node.value), self.visit(node.slice)), node)

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        if self.constant(node.test):
            return ast.copy_location(ast.IfExp(node.test, self.visit(node.body), self.visit(node.orelse)), node)
        return ast.copy_location(self.call("choose", self.visit(node.test), self.delayed(node.body),
                                           self.delayed(node.orelse)), node)

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        if self.constant(node):
            return node
        rest = node.values[1] if len(node.values) == 2 else ast.BoolOp(node.op, node.values[1:])
        method = "both" if isinstance(node.op, ast.And) else "either"
        return ast.copy_location(self.call(method, self.visit(node.values[0]), self.delayed(rest)), node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        if isinstance(node.op, ast.Not):
            return ast.copy_location(ast.Compare(self.visit(node.operand), [ast.Eq()], [ast.Constant(0)]), node)
        return self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        if len(node.ops) > 1:
            raise self.error(node, "a chain of comparisons")
        return self.generic_visit(node)

    def visit_Break(self, node: ast.Break) -> ast.stmt:
        raise self.error(node, "a break")

    visit_Continue = visit_Break  # noqa: N815

