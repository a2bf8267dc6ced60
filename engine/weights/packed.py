"""The packed format of linear maps, in which kernels of one instruction set read weights, and which files may hold.

In a packed model these arrays stand in place of the weights of an operation `Linear`, under the name of its first one:

    packed.<name>          uint8, the panels of all parts of the operation
    packed.<name>_scale    float32 [N], in int8 and int4: the quantization scale of each column
    packed.<name>_sums     float32 [N], in int8 only: the sum of the integers of each column
    packed.<name>_offset_scale    float32 [N], in int4 only: the scale of the offsets of each column; a map whose
                           panels hold int8 does not use it
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

from ..base.errors import WeightsError, shown
from ..model.precision import COMPUTED

PACKED_PREFIX = "packed."
VERSION = 1
"""The version of the packed format; it is raised when kernels read the same numbers in another form."""


@dataclass(frozen=True)
class PackedFormat:
    """The layout of packed panels: kernels with equal layouts can read each other's panels."""

    precision: str
    """The precision in which the kernels read the weights, one of `COMPUTED`."""
    weight_bytes: int
    """Bytes of an item of the stored array."""
    columns: int
    """Columns of a panel."""
    depth_step: int
    """Numbers of one column that lie side by side."""
    lanes: int
    """Numbers of a vector; the columns of each head are padded to a multiple of it."""
    bounded: bool
    """Whether int8 weights keep the bound of `engine.weights.int8_bound`."""
    version: int = VERSION

    @property
    def suffixes(self) -> tuple[str, ...]:
        """Return the ends of the names of the arrays beside the panels of a map."""
        return {"int8": ("_scale", "_sums"), "int4": ("_scale", "_offset_scale")}.get(self.precision, ())

    def __str__(self) -> str:
        """Return the layout in words, for `engine info`."""
        bounded = ", bounded" if self.bounded else ""
        return (f"{self.precision} in panels of {self.columns} columns by {self.depth_step}, vectors of "
                f"{self.lanes}{bounded}, version {self.version}")

    def to_json(self) -> dict[str, Any]:
        """Return a plain dictionary that `from_json` turns back into an equal layout."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Any) -> PackedFormat:
        """Rebuild from `to_json`'s dictionary; raises `WeightsError` for anything else."""
        names, types = [f.name for f in fields(cls)], {"precision": str, "bounded": bool}
        fits = isinstance(values, dict) and values.keys() == set(names)
        if not (fits and all(type(value) is types.get(name, int) for name, value in values.items())
                and values["precision"] in COMPUTED):
            raise WeightsError(f"the entry packed must describe a layout, with {', '.join(names)}, not {shown(values)}")
        return cls(**values)
