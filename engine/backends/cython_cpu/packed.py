"""Pack a model's linear maps once, for a file that later loads without packing."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ...architectures import program_of
from ...errors import UnsupportedError
from ...layout import PREFIX
from ...parameters import parameters_of
from ...program import Attend, Linear
from .native import Product
from .panels import Packer, layout_of

if TYPE_CHECKING:
    from ...model import Model


def pack_model(model: Model, product: Product) -> Model:
    """Return the model with its linear maps packed for a product, as `engine.layout` describes.

    Raises `UnsupportedError` for a model with relative positions, whose linear maps are also read unpacked, and for a
    model that is packed already.
    """
    if model.layout is not None:
        raise UnsupportedError(f"the model is packed already, as {model.layout}; pack the original model")
    program, packer = program_of(model.config), Packer(product, model.weights)
    arrays: dict[str, np.ndarray] = {}
    for operation, shapes in program.steps():
        if isinstance(operation, Attend) and operation.relative is not None:
            raise UnsupportedError(f"a model of the family {model.config.family} cannot be packed, because relative "
                                   "positions are computed from linear maps at load; convert it without --packed")
        if isinstance(operation, Linear):
            found = packer.linear(operation, shapes[operation.x]).arrays
            name = PREFIX + operation.parts[0].weight
            arrays |= {name + suffix: array for suffix, array in zip(("", "_scale", "_sums"), found, strict=True)
                       if array is not None}
    linear = {name for name, parameter in parameters_of(model.config).items() if parameter.kind == "linear"}
    kept = {name: array for name, array in model.weights.items() if name.removesuffix("_scale") not in linear}
    return replace(model, weights=kept | arrays, layout=layout_of(product))
