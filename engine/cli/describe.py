"""Describe a program in short formulas, with repeated layers once, for `engine info`."""

from __future__ import annotations

from itertools import groupby

from ..programs.operations import Attend, DistanceBias, Embed, Heads, Linear, Norm, Operation, Pick, Rotary, Table
from ..programs.program import Program


def outline(program: Program) -> list[tuple[str, str]]:
    """Return (label, formulas) of the operations before the layers, of each kind of layer, and of those after them."""
    kinds: dict[str, list[int]] = {}    # by formulas, the numbers of the layers that compute them
    weights: dict[str, set[str]] = {}   # by formulas, the first weights of these layers, fewer if layers share them
    around: list[str] = []
    for layer, operations in groupby(program.operations, key=lambda operation: operation.layer):
        of_layer = list(operations)
        text = "; ".join(map(formula, of_layer))
        if layer is None:
            around.append(text)
        else:
            kinds.setdefault(text, []).append(layer)
            weights.setdefault(text, set()).add(next(op.parts[0].weight for op in of_layer if isinstance(op, Linear)))
    before, after = around[:1], around[1:]
    layers = []
    for text, numbers in kinds.items():
        count, sets = len(numbers), len(weights[text])
        shared = "" if sets == count else f"; {count} layers share {sets} set{'s' * (sets > 1)} of weights"
        layers.append((_numbers(numbers), text + shared))
    return [*(("", text) for text in before), *layers, *(("", text) for text in after)]


def _numbers(layers: list[int]) -> str:
    """Return a label for the numbers of layers, in ascending order, such as "layers 0-3, 5"."""
    runs: list[list[int]] = []
    for layer in layers:
        if runs and runs[-1][-1] == layer - 1:
            runs[-1].append(layer)
        else:
            runs.append([layer])
    text = ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
    return f"layer {text}" if len(layers) == 1 else f"layers {text}"


def formula(operation: Operation) -> str:
    """Return one operation as a formula over the names of buffers and the last parts of the names of parameters."""
    match operation:
        case Embed():
            tables = (operation.word or Table("embeddings", 0), operation.position, operation.token_type)
            factor = "" if operation.scale == 1.0 else f"{operation.scale:g} "
            return f"{operation.out} = {factor}{' + '.join(_last_part(table.name) for table in tables if table)}"
        case Norm():
            residual = "" if operation.residual is None else f"{operation.residual} + "
            return f"{operation.out} = {residual}{operation.kind}_norm({operation.x})"
        case Linear():
            x = operation.x if operation.scale == 1.0 else f"({operation.scale:g} {operation.x})"
            maps = [f"{_last_part(part.weight.removesuffix('.weight'))} {x}" for part in operation.parts]
            outs = ", ".join(dict.fromkeys(part.out for part in operation.parts))
            if operation.gate:
                return f"{outs} = {operation.activation}({maps[0]}) * ({maps[1]})"
            if operation.activation:
                return f"{outs} = {operation.activation}({maps[0]})"
            return f"{outs} = {'' if operation.residual is None else operation.residual + ' + '}{', '.join(maps)}"
        case Heads():
            names, rotary = ", ".join(operation.buffers), operation.rotary
            parts = [f"rms_norm {'all heads' if operation.joint else 'each head'} of {names}"] * bool(operation.norms)
            parts += [] if rotary is None else [f"rotate {names} ({_frequencies(rotary)})"]
            return "; ".join(parts)
        case Attend():
            left, right = operation.window
            sides = [f"{side} on the {name}" for side, name in ((left, "left"), (right, "right")) if side is not None]
            window = f", {' and '.join(sides)} keys seen" if sides else ""
            bias = "" if operation.bias is None else f", {_bias(operation.bias)}"
            relative = operation.relative
            terms = [] if relative is None else ["c2p"] * bool(relative.key) + ["p2c"] * bool(relative.query)
            distances = f", {' and '.join(terms)} of distances" if terms else ""
            keys = {"pass": f"{operation.k}, {operation.v}", "cache": f"cached {operation.k}, {operation.v}",
                    "cross": "source"}[operation.keys]
            cap = f", scores within {operation.softcap:g}" if operation.softcap else ""
            return f"{operation.out} = attend({operation.q}, {keys}{cap}{bias}{distances}{window})"
        case Pick():
            return f"{operation.out} = picked rows of {operation.x}"
    return f"store {operation.x}"


def _bias(bias: DistanceBias) -> str:
    """Return the description of a bias by distance."""
    if bias.table is None:
        return "ALiBi"
    whose = "of its own" if bias.table.name.startswith("layers.") else "for all layers"
    return f"bias of {bias.table.rows} buckets to distance {bias.max_distance}, {whose}"


def _frequencies(rotary: Rotary) -> str:
    """Return the description of the frequencies of a rotary embedding, which are radians for each position."""
    factor = "" if rotary.factor == 1.0 else f", times {rotary.factor:g}"
    if rotary.frequencies:
        return f"by {rotary.frequencies[0]:g} to {rotary.frequencies[-1]:g} a position{factor}"
    scale = "" if rotary.scale == 1.0 else f", positions / {rotary.scale:g}"
    return f"theta {rotary.theta:g}{scale}{factor}"


def _last_part(name: str) -> str:
    return name.rpartition(".")[2]
