"""Pack a model's weights into the panels of the kernels, in the plan's precision, with heads padded to vectors.

`Packer` serves `lowering.py`, which makes a plan or a decoder; `pack_transformer` packs a model for a file.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from ...base.errors import InputError, UnsupportedError, WeightsError, listed
from ...model.positions import distance_bias, relative_rows
from ...model.precision import BLOCKS, COMPUTED, FORMATS, STORED, WAYS
from ...model.run_config import RunConfig
from ...programs import programs_of
from ...programs.operations import Attend, Buffer, DistanceBias, Linear, LinearPart, Parameter, Relative, Rotary, Table
from ...weights.packed import PACKED_PREFIX, PackedFormat
from ...weights.parameters import kept_finer, parameters_of
from ...weights.quantize import in_format, is_bounded, widen
from ..relative import relative_vectors
from .angles import Angles
from .native.layout import ACTIVATIONS, STORAGE
from .native.native import Kernels, NormWeights, PackedLinear, Product, RelativeWeights, TableWeights

if TYPE_CHECKING:
    from ...weights.model import Transformer

MOST_POSITION_BYTES = 2**30
"""Limit on the bytes of the tables of a model's rotary embeddings, and of its vectors of relative positions."""
MOST_BIAS_BYTES = 2**30
"""Limit on the memory of a model's biases by distance, which grows with the longest sequence."""


def allocate(n: int) -> np.ndarray:
    """Return n zeroed floats, page-aligned, on huge pages where the system grants them, private to a forked child.

    Raises `MemoryError`.
    """
    try:
        memory = mmap.mmap(-1, max(1, n) * 4, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise MemoryError(f"no memory for {4 * n:,} bytes of weights or workspace: {error.strerror}") from None
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # a kernel can be built without huge pages
            memory.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(memory, np.float32, n)


def product_of(kernels: Kernels, run: RunConfig, decodes: bool = False) -> Product:
    """Return the product of linear maps in the precision of a run; raises `UnsupportedError` if the kernels lack it."""
    if run.portable and run.precision in WAYS:
        raise UnsupportedError(f"precision {run.precision!r} needs AMX's tiles, so it has no portable bits; use "
                               f'precision={FORMATS[run.precision].stored!r}, or bits="fastest"')
    if run.portable and not kernels.fused:
        raise UnsupportedError(no_portable_bits(kernels))
    product = kernels.product(run.precision, decodes, run.portable)
    if not product.exists:
        raise UnsupportedError(f"precision {run.precision!r} needs kernels on AMX's tiles, and the {kernels.isa} "
                               f"kernels, which run here, lack it; use precision={FORMATS[run.precision].stored!r}")
    return product


def no_portable_bits(kernels: Kernels) -> str:
    """Say why kernels without fused multiply-adds have no portable bits."""
    return (f"the {kernels.isa} kernels, which run here, have no fused multiply-adds, which portable bits need; use "
            'bits="fastest", or a CPU with AVX2 and FMA')


def layout_of(product: Product) -> PackedFormat:
    """Return the layout of the panels that a product reads."""
    form = FORMATS[product.precision]
    return PackedFormat(form.stored, weight_bytes=form.dtype.itemsize, columns=product.kernels.NR,
                        depth_step=product.depth_step, lanes=product.lanes, bounded=product.needs_bound)


Made = TypeVar("Made")


class Packer:
    """Makes the data that a model's instructions read, each once: linear maps, norms, tables, angles and biases."""

    def __init__(self, product: Product, weights: Mapping[str, np.ndarray], longest: int = 1,
                 finer: Collection[str] = ()):
        """longest: the tokens of the longest sequence. finer: the names of the weights that have 8 bits where the
        other weights have 4.
        """
        self._product, self._finer = product, finer
        self._weights = weights
        self.longest = longest
        self._angles: dict[Rotary, Angles] = {}
        self._biases: dict[DistanceBias, np.ndarray] = {}
        self._made: dict[Hashable, Any] = {}
        self._reserved = 0      # bytes of tables of positions

    def release(self) -> None:
        """Release the unpacked weights; afterwards the packer returns only the arrays that it has made before."""
        self._weights = {}

    def _cached(self, key: Hashable, make: Callable[[], Made]) -> Made:
        """Return the cached result of `make` for this key, and call `make` if there is none."""
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]

    def padded(self, width: int, heads: int | None = None) -> int:
        """Return the width of a row in memory: each head, or the row, is padded to the lanes of the product.

        Heads are padded to whole blocks of weights, too.
        """
        each, step = width // (heads or 1), self._product.lanes
        if heads:
            step = max(step, FORMATS[self._product.precision].block)
        return (heads or 1) * -(-each // step) * step

    def depth(self, x: Buffer) -> int:
        """Return K of the products whose input is laid out as the buffer x."""
        return self.padded(x.width, x.heads) if x.heads else x.width

    def norm(self, weight: str, bias: str | None, eps: float, width: int) -> NormWeights:
        """Return the weight, the bias and the epsilon of a norm; without a bias it is zeros."""
        return self._cached((weight, bias, eps, width), lambda: NormWeights(
            self._weights[weight], np.zeros(width, np.float32) if bias is None else self._weights[bias], eps))

    def table(self, table: Table | None, factor: float = 1.0) -> TableWeights | None:
        """Return a table of the embeddings as it is stored, without a copy; a float16 table is widened.

        factor: multiplies the numbers of the table when they are read.
        """
        return None if table is None else self._cached((table, factor), lambda: self._table(table, factor))

    def _table(self, table: Table, factor: float) -> TableWeights:
        """Return a new `TableWeights` for `table`."""
        rows = self._weights[table.name]
        if STORED[rows.dtype] not in COMPUTED:
            rows = widen(self._weights, table.name)
        storage, scale = STORAGE[STORED[rows.dtype]], self._weights.get(f"{table.name}_scale")
        return TableWeights(rows.view(np.uint8), storage, scale, factor)

    def angles(self, rotary: Rotary) -> tuple[np.ndarray, np.ndarray]:
        """Return cos and sin [positions, width/2] of a rotary embedding, made once for all layers that share it.

        `fill_angles` fills them, up to the largest position that it has had so far.
        """
        if rotary not in self._angles:
            float_pairs = rotary.positions * (rotary.width // 2)        # a cosine and a sine, of 4 bytes each
            self._reserve("rotary embeddings", 8 * float_pairs, "max_positions")
            self._angles[rotary] = Angles(rotary)
        angles = self._angles[rotary]
        return angles.cos, angles.sin

    def fill_angles(self, positions: np.ndarray) -> None:
        """Compute the angles up to the largest position of a pass; positions: int32 [N], N at least 1."""
        if self._angles:
            last = int(positions.max())
            for angles in self._angles.values():
                angles.fill(last + 1)

    def _reserve(self, what: str, size: int, setting: str) -> None:
        """Count `size` further bytes of tables of positions; raises `UnsupportedError` if the sum is too large.

        what, setting: what the bytes hold, and the setting that lowers their number, for the message.
        """
        self._reserved += size
        if self._reserved > MOST_POSITION_BYTES:
            raise UnsupportedError(f"the {what} of the model would take more than {MOST_POSITION_BYTES:,} bytes; "
                                   f"lower {setting} in its configuration")

    def bias(self, bias: DistanceBias, heads: int) -> np.ndarray:
        """Return the bias of each head for all distances [H, 2 * longest - 1], made once for all layers that share it.

        Raises `InputError` if the biases of the model would need more memory than `MOST_BIAS_BYTES`.
        """
        if bias not in self._biases:
            size = 4 * heads * (2 * self.longest - 1) * (len(self._biases) + 1)    # with all biases so far
            if size > MOST_BIAS_BYTES:
                raise InputError(f"the biases of attention would take more than {MOST_BIAS_BYTES:,} bytes for sequences"
                                 f" of {self.longest:,} tokens; load the model with a smaller max_batch_tokens")
            table = None if bias.table is None else self._weights[bias.table.name]
            line = distance_bias(self.longest, heads, table, bias.max_distance, bias.one_sided)
            self._biases[bias] = np.ascontiguousarray(line, np.float32)
        return self._biases[bias]

    def relative(self, operation: Attend, shapes: Mapping[str, Buffer]) -> RelativeWeights | None:
        """Return key and query vectors of relative positions, from the maps' weights in the plan's precision."""
        relative, k, q = operation.relative, shapes[operation.k], shapes[operation.q]
        if relative is None:
            return None
        key = relative, operation.scale, k, q
        return self._cached(key, lambda: self._relative(relative, operation.scale, k.heads or 1, q.heads or 1))

    def _relative(self, relative: Relative, scale: float, key_heads: int, heads: int) -> RelativeWeights:
        """Compute the vectors of relative positions, and pack them by head, for this number of key and query heads."""
        maps = [affine for affine in (relative.key, relative.query) if affine is not None]
        columns = sum(len(self._weights[affine.weight]) for affine in maps)
        float64_bytes = 8 * relative.table.rows * columns
        self._reserve("vectors of relative positions", float64_bytes, "the relative positions")
        weights = dict(self._weights)
        for affine in maps:     # rounded as the plan's other maps are
            weights[affine.weight] = self._round_as_planned(affine.weight, relative.width)
        keys, queries = relative_vectors(relative, weights)
        distances = np.arange(-relative.limit, relative.limit + 1)
        return RelativeWeights(
            # Columns follow the keys of one query, whose distance falls from key to key: the last row comes first.
            None if keys is None else self._panels_of_heads(keys[::-1] * scale, key_heads),
            None if queries is None else self._panels_of_heads(queries * scale, heads),
            relative_rows(distances, relative.limit, relative.buckets), relative.table.rows)

    def _round_as_planned(self, name: str, K: int) -> np.ndarray:
        """Return a weight [N,K], as the plan's precision rounds it, in float64."""
        parameter = Parameter((len(self._weights[name]), K), "linear")
        weight, scale = self._in_format(name, parameter)
        stored = {name: weight} if scale is None else {name: weight, f"{name}_scale": scale.astype(np.float64)}
        return widen(stored, name, parameter).astype(np.float64)

    def _panels_of_heads(self, rows: np.ndarray, heads: int) -> np.ndarray:
        """Return rows [n, heads*d] as panels [heads, n/NR, d, NR] for each head, the last panel filled with zeros."""
        NR, d = self._product.kernels.NR, rows.shape[1] // heads
        count = -(-len(rows) // NR)
        panels = allocate(heads * count * d * NR).reshape(heads, count, d, NR)
        by_head = rows.reshape(len(rows), heads, d).transpose(1, 2, 0)
        for i in range(count):
            part = by_head[:, :, i * NR : (i + 1) * NR]
            panels[:, i, :, : part.shape[2]] = part
        return panels

    def linear(self, operation: Linear, x: Buffer) -> PackedLinear:
        """Return all parts of an operation packed as one map, whose inputs are laid out as the buffer x is.

        Layers that share their weights share the packed map, too.
        """
        key = operation.parts, operation.gate, operation.activation, x
        return self._cached(key, lambda: self._pack_linear(operation, x))

    def _pack_linear(self, operation: Linear, x: Buffer) -> PackedLinear:
        """Pack the parts of an operation side by side as one map [N, K], or take the map that the file holds."""
        product = self._product
        widths = [self.padded(part.width, part.heads) for part in operation.parts]
        N, K = sum(widths), self.depth(x)
        activation = ACTIVATIONS[operation.activation] if operation.activation else 0       # 0: none
        runs = list(_runs(operation, widths, product.kernels.NR))
        bias = np.zeros(N, np.float32)
        for part, columns, rows in runs:
            if part.bias is not None:
                bias[columns] = self._weights[part.bias][rows]
        name = f"{PACKED_PREFIX}{operation.parts[0].weight}"
        if name in self._weights:       # the model was packed when it was converted
            return self._wrap_packed(name, N, K, bias, activation)
        weights, own_format = self._weights_in_one_format(operation, x)
        scales = np.ones((FORMATS[own_format].scales, N), np.float32)
        for part, columns, rows in runs:
            _, part_scales = weights[part.weight]
            if part_scales is not None:
                scales[:, columns] = part_scales[rows].T
        scale, offset_scale = (*scales, None, None)[:2]     # int8 has a scale alone, int4 both, other formats neither
        size = product.packed_bytes(N, K, own_format)
        panels = allocate(-(-size // 4)).view(np.uint8)[:size]
        packed = PackedLinear(product, panels, K, bias, scale, activation, offset_scale=offset_scale, format=own_format)
        for part, columns, rows in runs:
            weight, _ = weights[part.weight]
            packed.fill(np.ascontiguousarray(weight[rows]), columns.start)
        return packed

    def _weights_in_one_format(self, operation: Linear, x: Buffer
                               ) -> tuple[dict[str, tuple[np.ndarray, np.ndarray | None]], str]:
        """Return the weight [N,K] and the scales of each part, by the name of the weight; then the format of them all.

        One map has one format. Where the parts have two, all get the finer one, which can hold the other's numbers.
        """
        weights = {part.weight: self._padded_to_heads(part.weight, x) for part in operation.parts}
        formats = {STORED[weight.dtype] for weight, _ in weights.values()}
        if len(formats) > 1:
            formats = {FORMATS[self._product.precision].finer}
            weights = {name: self._padded_to_heads(name, x, *formats) for name in weights}
        [own_format] = formats
        return weights, own_format

    def _wrap_packed(self, name: str, N: int, K: int, bias: np.ndarray, activation: int) -> PackedLinear:
        """Return a map of N columns whose panels the file holds; their size tells which format they have."""
        panels, product = self._weights[name], self._product
        others = {suffix: self._weights[f"{name}{suffix}"] for suffix in layout_of(product).suffixes}
        formats = [FORMATS[product.precision].stored, *FORMATS[product.precision].beside]   # most maps have the first
        sizes = {product.packed_bytes(N, K, form): form for form in formats}
        if len(panels) not in sizes or any(len(array) != N for array in others.values()):
            lengths = listed([f"{len(array):,}" for array in others.values()])
            expected = " or ".join(f"{size:,}" for size in sizes)
            raise WeightsError(f"{name} or the numbers beside it have {len(panels):,} and {lengths} entries, expected "
                               f"{expected} and {N:,}: the packed file is damaged; convert the original model again")
        own_format = sizes[len(panels)]
        if own_format == "int8":    # the map has no offsets; beside int4 maps, a file has ones in their place
            others.pop("_offset_scale", None)
        return PackedLinear(product, panels, K, bias, others.get("_scale"), activation, others.get("_sums"),
                            others.get("_offset_scale"), own_format)

    def _padded_to_heads(self, name: str, x: Buffer, *formats: str) -> tuple[np.ndarray, np.ndarray | None]:
        """Return a weight [N,K] in a format, and its scales, with zeros where the heads of the buffer x end."""
        heads = x.heads or 1
        weight, scale = self._in_format(name, Parameter((len(self._weights[name]), x.width), "linear", heads), *formats)
        if x.heads and FORMATS[STORED[weight.dtype]].block == 1:    # blocks hold the zeros behind each head already
            width = x.width // heads
            padded = np.zeros((len(weight), heads, self.padded(x.width, heads) // heads), weight.dtype)
            padded[:, :, :width] = weight.reshape(len(weight), heads, width)
            weight = padded.reshape(len(weight), -1)
        return weight, scale

    def _in_format(self, name: str, parameter: Parameter, *formats: str) -> tuple[np.ndarray, np.ndarray | None]:
        """Return a weight of a linear map and its scales in one of some formats, by default the plan's.

        A product that adds in 16 bits (AVX2's) needs int8 weights within the bound of `weights.int8_bound`; weights
        outside it are quantized again, in coarser steps.
        """
        weights, bounded = self._weights, self._product.needs_bound
        form = FORMATS[FORMATS[self._product.precision].stored]
        if not formats:
            is_finer = name in self._finer and form.name not in BLOCKS      # the blocks of a file stay as they are
            formats = (form.finer,) if is_finer else (form.name, *form.beside)
        if bounded and weights[name].dtype == np.int8 and not is_bounded(weights[name], parameter.heads):
            weights = {name: widen(weights, name, parameter)}
        return in_format(weights, name, parameter, formats, bounded)


def _runs(operation: Linear, widths: list[int], NR: int) -> Iterator[tuple[LinearPart, slice, slice]]:
    """Yield (part, columns of the map, rows of the part's weight that fill them) for all runs of columns.

    Parts lie one after another, and those of a gate in turn: a panel has NR columns, the gate's in its first half and
    the other part's in its second. widths: the columns of each part, with its padding.
    """
    for index, part in enumerate(operation.parts):
        if operation.gate:
            runs = _halves_of_panels(part.width, sum(widths), NR, second=index == 1)
        else:
            runs = _heads(part.width, part.heads, widths[index], sum(widths[:index]))
        yield from ((part, slice(column, column + rows.stop - rows.start), rows) for column, rows in runs)


def _heads(width: int, heads: int | None, padded: int, start: int) -> Iterator[tuple[int, slice]]:
    """Yield (first column, rows of the weight) for each head of a part that begins at column `start`.

    width, padded: the columns of all heads without and with their padding. heads: None for a part that is one head.
    """
    count = heads or 1
    for h in range(count):
        yield start + h * (padded // count), slice(h * (width // count), (h + 1) * (width // count))


def _halves_of_panels(width: int, N: int, NR: int, second: bool) -> Iterator[tuple[int, slice]]:
    """Yield (first column, rows of the weight) for one of the two parts of a gate, which fills half of each panel.

    width: of the part, whose padding has no rows. N: the columns of both parts. second: whether it is the second part.
    """
    for panel in range(0, N, NR):
        half = min(N - panel, NR) // 2      # the last panel may be narrower
        first = panel // 2
        yield panel + half * second, slice(first, min(first + half, width))


def pack_transformer(model: Transformer, product: Product) -> Transformer:
    """Return an encoder or a decoder with its linear maps packed for a product, as `engine.weights.packed` describes.

    Raises `UnsupportedError` for a model with relative positions, whose linear maps are also read unpacked, and for a
    model that is packed already.
    """
    if model.layout is not None:
        raise UnsupportedError(f"the model is packed already, as {model.layout}; pack the original model")
    layout, packer = layout_of(product), Packer(product, model.weights, finer=kept_finer(model.config))
    arrays: dict[str, np.ndarray] = {}
    for operation, shapes in (step for program in programs_of(model.config) for step in program.steps()):
        if isinstance(operation, Attend) and operation.relative is not None:
            raise UnsupportedError(f"a model of the family {model.config.family} cannot be packed, because relative "
                                   "positions are computed from linear maps at load; convert it without --packed")
        if isinstance(operation, Linear):
            panels, scale, sums, offset_scale = packer.linear(operation, shapes[operation.x]).arrays
            name = PACKED_PREFIX + operation.parts[0].weight
            arrays[name] = panels
            beside = {"_scale": scale, "_sums": sums, "_offset_scale": offset_scale}
            arrays |= {name + suffix: array for suffix, array in beside.items()
                       if array is not None and suffix in layout.suffixes}
            if "_offset_scale" in layout.suffixes and offset_scale is None and scale is not None:
                # An int8 map among int4 maps: the file has offset scales for every map, and this one reads none.
                arrays[f"{name}_offset_scale"] = np.ones_like(scale)
    linear = {name for name, parameter in parameters_of(model.config).items() if parameter.kind == "linear"}
    kept = {name: array for name, array in model.weights.items() if name.removesuffix("_scale") not in linear}
    return replace(model, weights=kept | arrays, layout=layout)
