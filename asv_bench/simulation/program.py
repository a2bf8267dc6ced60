"""List the instructions of a model by the engine's own lowering, with sizes in place of weights."""

from dataclasses import dataclass
from types import SimpleNamespace

from engine.backends.cpu.lowering import _Emitter, fuse
from engine.backends.cpu.native.layout import ACTIVATIONS
from engine.backends.cpu.packer import Packer
from engine.backends.cpu.placing import Placed, place
from engine.model.config import ModelConfig
from engine.programs import program_of

from .hardware import Rates


@dataclass(frozen=True)
class Map:
    """The sizes of a packed linear map."""

    name: str
    N: int
    K: int
    activation: int


@dataclass(frozen=True)
class Instruction:
    """An instruction of program.pxi: the parts of it that time depends on."""

    kind: str
    needs_barrier: bool
    reads: tuple[int, ...] = ()
    """Numbers of buffers."""
    writes: tuple[int, ...] = ()
    width: int = 0
    """Columns that a row-by-row instruction works on."""
    map: Map | None = None
    result: str = ""
    """Of a product: "plain", "activation" or "residual"."""
    d: int = 0
    band: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class Listing:
    """The instructions of a model and its buffers, by number."""

    code: list[Instruction]
    buffers: list[Placed]


class _Sizes:
    """Takes the place of the Packer, and makes sizes instead of packed weights."""

    def __init__(self, rates: Rates):
        self._VL = rates.kernels.VL

    longest = 1
    depth = Packer.depth

    def padded(self, width, heads=None):
        return (heads or 1) * -(-(width // (heads or 1)) // self._VL) * self._VL

    def linear(self, operation, x):
        N = sum(self.padded(part.width, part.heads) for part in operation.parts)
        activation = ACTIVATIONS[operation.activation] if operation.activation else 0
        return Map(operation.parts[0].weight, N, self.depth(x), activation)

    def norm(self, weight, bias, eps, width):
        return width

    def table(self, table, factor):
        return None

    def bias(self, bias, heads):
        raise ValueError("the simulation has no measured times of attention with a bias")

    def relative(self, operation, shapes):
        if operation.relative is not None:
            raise ValueError("the simulation has no measured times of attention with relative positions")

    def angles(self, rotary):
        raise ValueError("the simulation has no measured times of rotary embeddings")


class _Recorder:
    """Takes the place of the Executor, and keeps the instructions."""

    def __init__(self, placed: list[Placed]):
        self.code: list[Instruction] = []
        self._placed = placed
        self._converted: dict[int, int] = {}
        """The buffer that each buffer of operands was made from."""

    def embed(self, out, width, *tables, needs_barrier):
        self.code.append(Instruction("EMBED", needs_barrier, writes=(out,), width=width))

    def norm(self, x, out, width, *, residual, operands, rms, stored, needs_barrier):
        reads = (x,) if residual < 0 else (x, residual)
        self.code.append(Instruction("NORM", needs_barrier, reads, () if stored else (out,), width))
        if operands >= 0:       # takes as long as a conversion of its own
            self.convert(out, operands, width, needs_barrier=False)

    def convert(self, x, operands, width, *, needs_barrier):
        self.code.append(Instruction("CONVERT", needs_barrier, (x,), width=width))
        self._converted[operands] = x

    def multiply(self, x, out, map, *, residual, operands, approximate, gated, needs_barrier):
        x = self._converted.get(x, x)
        writes, columns = [], 0
        while columns < map.N:      # the parts of a map are written to buffers that follow each other
            writes.append(out + len(writes))
            placed = self._placed[writes[-1]]
            columns += placed.floats if placed.heads else map.N
        reads = (x,) if residual < 0 else (x, residual)
        result = "activation" if map.activation else "residual" if residual >= 0 else "plain"
        self.code.append(Instruction("MULTIPLY", needs_barrier, reads, tuple(writes), map=map, result=result))

    def attend(self, q, k, v, out, d, scale, softcap, low, high, bias, relative, observed, longest, *, needs_barrier):
        self.code.append(Instruction("ATTEND", needs_barrier, (q, k, v), (out,), d=d, band=(low, high)))

    def store(self, x, width, array, *, needs_barrier):
        self.code.append(Instruction("STORE", needs_barrier, (x,), width=width))


def listing(config: ModelConfig, rates: Rates) -> Listing:
    """Return the instructions of a model in the precision of the rates; raises ValueError for one without rates."""
    program, sizes = program_of(config), _Sizes(rates)
    # Kernels on tiles, and products that write operands, do more, for which there are no rates yet.
    product = SimpleNamespace(converts=rates.converts, operands_depth=0, attends_rows=False, approximates=False,
                              hidden_columns=0, operand_bytes=4, operands_stride=lambda width: width)
    placed = place(program, product, sizes)
    recorder = _Recorder(list(placed.values()))
    _Emitter(recorder, sizes, product, placed, storage=0).emit(fuse(program))
    return Listing(recorder.code, list(placed.values()))
