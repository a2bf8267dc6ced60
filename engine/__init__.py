"""Run transformers on CPUs from exported weights, without a deep learning framework.

    from engine import Engine

    engine = Engine.load("all-MiniLM-L6-v2")
    vectors = engine.encode(["a first sentence", "a second one"])        # float32 [2, 384]

    from engine import Generator

    generator = Generator.load("opus-mt-en-de")
    generator.translate(["A sentence."], num_beams=4)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .engine import Engine
from .errors import BackendUnavailable, EngineError, InputError, TimedOut, UnsupportedError, WeightsError
from .generator import Generator
from .outputs import ForwardOutput
from .reranker import Reranker
from .transcriber import Transcriber

if TYPE_CHECKING:
    from . import ops, plot

__version__ = "0.1.0"

__all__ = [
    "BackendUnavailable",
    "Engine",
    "EngineError",
    "ForwardOutput",
    "Generator",
    "InputError",
    "Reranker",
    "TimedOut",
    "Transcriber",
    "UnsupportedError",
    "WeightsError",
    "ops",
    "plot",
]


def __getattr__(name: str) -> Any:
    # They are imported at their first use, so that `import engine` stays fast.
    if name in ("ops", "plot"):
        return import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
