"""Define the cases that are timed."""

from dataclasses import dataclass

import numpy as np

from engine.model.attention import AttentionKind, RelativePositions
from engine.model.config import ModelConfig


@dataclass(frozen=True)
class Attention:
    """Attention of B sequences of T tokens with H heads of width d: 16,384 tokens of 2,048 numbers, as in papers."""

    T: int
    d: int
    tokens: int = 16_384
    width: int = 2_048

    @property
    def B(self) -> int:  # noqa: N802
        return self.tokens // self.T

    @property
    def H(self) -> int:  # noqa: N802
        return self.width // self.d

    @property
    def flops(self) -> float:
        """Return the operations of both GEMMs."""
        return 4.0 * self.tokens * self.T * self.width

    def __str__(self) -> str:
        return f"d={self.d} T={self.T}"


@dataclass(frozen=True)
class Call(Attention):
    """`engine.ops.attention` of arrays in bfloat16 that lie on the GPU."""

    causal: bool = False

    @property
    def flops(self) -> float:
        """Return the operations on keys that a query sees."""
        return super().flops / (2 if self.causal else 1)

    def __str__(self) -> str:
        return f"{super().__str__()}{' causal' * self.causal}"


@dataclass(frozen=True)
class Window(Attention):
    """Attention in which a query sees `side` keys before its own and as many after it, beside all keys."""

    side: int = 64

    @property
    def flops(self) -> float:
        """Return the operations on all keys."""
        return super().flops

    def __str__(self) -> str:
        return f"{super().__str__()} window of {2 * self.side + 1}"


@dataclass(frozen=True)
class Rows:
    """A kernel of N rows of D numbers that the bandwidth of the memory limits: norm, embedding or heads."""

    kind: str
    N: int = 16_384
    D: int = 768

    @property
    def bytes(self) -> int:
        """Return the bytes that it reads and writes: float32 to float32 and bfloat16; heads are queries and keys."""
        return self.N * self.D * (8 if self.kind == "heads" else 10)

    def __str__(self) -> str:
        return f"{self.kind} {self.N}x{self.D}"


@dataclass(frozen=True)
class Linear:
    """A linear map of N tokens with M outputs and K inputs; the epilogue is exact GELU, a residual or just the bias."""

    N: int
    M: int
    K: int
    epilogue: str

    @property
    def flops(self) -> float:
        return 2.0 * self.N * self.M * self.K

    def __str__(self) -> str:
        return f"{self.N}x{self.M}x{self.K} {self.epilogue}"


@dataclass(frozen=True)
class Encoder:
    """A forward pass of B sequences of T tokens, or of mixed lengths from 16 to T."""

    model: str
    B: int
    T: int
    compiled: bool = False
    """Whether PyTorch's compiler takes part; it needs many seconds for each case."""
    mixed: bool = False

    @property
    def lengths(self) -> list[int]:
        """Return the number of tokens of each sequence."""
        random = np.random.default_rng(7).integers(16, self.T + 1, self.B)
        return random.tolist() if self.mixed else [self.T] * self.B

    def __str__(self) -> str:
        return f"{self.model} {self.B}x{'16 to ' * self.mixed}{self.T}"


def _bert(layers: int, D: int, H: int) -> ModelConfig:
    return ModelConfig("bert", hidden_size=D, num_layers=layers, num_heads=H, head_width=D // H, ffn_size=4 * D,
                       vocab_size=30522, max_positions=512, token_types=2)


_LAYERS = 22
BERTS = {"BERT-base": _bert(12, 768, 12), "BERT-large": _bert(24, 1024, 16), "MiniLM": _bert(6, 384, 12)}
MODELS = BERTS | {
    "ModernBERT-base": ModelConfig(
        "modernbert", hidden_size=768, num_layers=_LAYERS, num_heads=12, head_width=64, ffn_size=1152, vocab_size=50368,
        max_positions=8192, position_table=False, norm_eps=1e-5, norm_place="pre", norm_bias=False, biases=(),
        first_attention_norm=False, gated=True, layer_kinds=tuple(int(i % 3 != 0) for i in range(_LAYERS)),
        attention_kinds=(AttentionKind(rotary_theta=160_000.0), AttentionKind(64, rotary_theta=10_000.0))),
    "DeBERTa-base": ModelConfig(
        "deberta-v2", hidden_size=768, num_layers=12, num_heads=12, head_width=64, ffn_size=3072, vocab_size=128_100,
        max_positions=512, position_table=False, norm_eps=1e-7, relative=RelativePositions(limit=512, buckets=256)),
}

ATTENTION = [Attention(T, d) for d in (64, 128, 32) for T in (512, 1024, 2048, 4096, 128)]
LINEAR = [Linear(N, M, K, epilogue) for N in (16_384, 512) for M, K, epilogue in (
    (2304, 768, "bias"), (3072, 768, "gelu"), (768, 3072, "residual"), (4096, 1024, "gelu"), (1024, 4096, "residual"))]
_COMPILED = {("BERT-base", 128, 128), ("BERT-base", 1, 128), ("MiniLM", 128, 128)}
ENCODER = [Encoder(model, B, T, (model, B, T) in _COMPILED)
           for T in (128, 512) for B in (128, 1, 8, 32, 512) for model in BERTS]
HEADLINES = [case for case in ENCODER if case.model == "BERT-base" and case.T == 128 and case.B in (1, 128)]
OTHERS = [Encoder("ModernBERT-base", 128, 512, compiled=True), Encoder("DeBERTa-base", 32, 512),
          Encoder("ModernBERT-base", 128, 512, compiled=True, mixed=True)]
ROWS = [Rows(kind) for kind in ("norm", "embedding", "heads")]
CALLS = [Call(T, d, causal=causal)
         for T in (512, 1024, 2048, 4096, 8192) for d in (64, 128) for causal in (False, True)]
WINDOW = [Window(4096, 64)]
FIRST = [("rows", ROWS), ("encoder", HEADLINES), ("window", WINDOW), ("operation", CALLS), ("encoder", OTHERS)]
"""The cases that have a goal (`goals.py`), by sections."""
REST = [("attention", ATTENTION[:5]), ("encoder", [case for case in ENCODER if case not in HEADLINES]),
        ("attention", ATTENTION[5:]), ("linear", LINEAR)]
"""The other cases; the most important come first, because the time may run out."""
