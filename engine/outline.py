"""Describe a program in short formulas, with repeated layers once, for `engine info`."""

from __future__ import annotations

from itertools import groupby

from .program import Attend, Embed, Heads, Linear, Norm, Operation, Program, Table


def outline(program: Program) -> list[tuple[str, str]]:
    """Return (label, formulas) once for each kind of layer, and for the operations before and after the layers."""
    kinds: dict[str, list[int]] = {}
    around: list[str] = []
    for layer, operations in groupby(program.operations, key=lambda operation: operation.layer):
        text = "; ".join(formula(operation) for operation in operations)
        if layer is None:
            around.append(text)
        else:
            kinds.setdefault(text, []).append(layer)
    before, *after = around
    layers = [(_numbers(numbers), text) for text, numbers in kinds.items()]
    return [("", before), *layers, *(("", text) for text in after)]


def _numbers(layers: list[int]) -> str:
    """Return a label with the numbers of layers, runs as first-last."""
    runs: list[list[int]] = []
    for layer in layers:
        if runs and runs[-1][-1] == layer - 1:
            runs[-1].append(layer)
        else:
            runs.append([layer])
    text = ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
    return f"layer {text}" if len(layers) == 1 else f"layers {text}"


def formula(operation: Operation) -> str:
    """Return one operation as a formula over buffers and the last parts of parameter names."""
    match operation:
        case Embed():
            tables = (operation.word or Table("embeddings", 0), operation.position, operation.token_type)
            return f"{operation.out} = {' + '.join(_last(table.name) for table in tables if table)}"
        case Norm():
            return f"{operation.out} = {operation.kind}_norm({operation.x})"
        case Linear():
            maps = [f"{_last(part.weight.removesuffix('.weight'))} {operation.x}" for part in operation.parts]
            outs = ", ".join(dict.fromkeys(part.out for part in operation.parts))
            if operation.gate:
                return f"{outs} = {operation.activation}({maps[0]}) * ({maps[1]})"
            if operation.activation:
                return f"{outs} = {operation.activation}({maps[0]})"
            return f"{outs} = {'' if operation.residual is None else operation.residual + ' + '}{', '.join(maps)}"
        case Heads():
            names, rotary = ", ".join(operation.buffers), operation.rotary
            parts = [f"rms_norm each head of {names}"] * bool(operation.norms)
            parts += [] if rotary is None else [f"rotate {names} (theta {rotary.theta:g})"]
            return "; ".join(parts)
        case Attend():
            left, right = operation.window
            sides = [f"{side} on the {name}" for side, name in ((left, "left"), (right, "right")) if side is not None]
            window = f", {' and '.join(sides)} keys seen" if sides else ""
            return f"{operation.out} = attend({operation.q}, {operation.k}, {operation.v}{window})"
    return f"store {operation.x}"


def _last(name: str) -> str:
    return name.rpartition(".")[2]
