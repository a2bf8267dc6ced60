"""Define the cases that are timed."""

from dataclasses import dataclass

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
    """A forward pass of B sequences of T tokens."""

    model: str
    B: int
    T: int
    compiled: bool = False
    """Whether PyTorch's compiler takes part; it needs many seconds for each case."""

    def __str__(self) -> str:
        return f"{self.model} {self.B}x{self.T}"


def _bert(layers: int, D: int, H: int) -> ModelConfig:
    return ModelConfig("bert", hidden_size=D, num_layers=layers, num_heads=H, head_width=D // H, ffn_size=4 * D,
                       vocab_size=30522, max_positions=512, token_types=2)


MODELS = {"BERT-base": _bert(12, 768, 12), "BERT-large": _bert(24, 1024, 16), "MiniLM": _bert(6, 384, 12)}

ATTENTION = [Attention(T, d) for d in (64, 128, 32) for T in (512, 1024, 2048, 4096, 128)]
LINEAR = [Linear(N, M, K, epilogue) for N in (16_384, 512) for M, K, epilogue in (
    (2304, 768, "bias"), (3072, 768, "gelu"), (768, 3072, "residual"), (4096, 1024, "gelu"), (1024, 4096, "residual"))]
_COMPILED = {("BERT-base", 128, 128), ("BERT-base", 1, 128), ("MiniLM", 128, 128)}
ENCODER = [Encoder(model, B, T, (model, B, T) in _COMPILED)
           for T in (128, 512) for B in (128, 1, 8, 32, 512) for model in ("BERT-base", "MiniLM", "BERT-large")]
HEADLINES = [case for case in ENCODER if case.model == "BERT-base" and case.T == 128 and case.B in (1, 128)]
TIMED = [("encoder", HEADLINES), ("attention", ATTENTION[:5]),
         ("encoder", [case for case in ENCODER if case not in HEADLINES]), ("attention", ATTENTION[5:]),
         ("linear", LINEAR)]
"""The cases by sections; the most important come first, because the time may run out."""
