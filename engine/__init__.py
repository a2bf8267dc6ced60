"""Run transformer encoders on CPUs from exported weights, without a deep learning framework.

    from engine import Engine

    engine = Engine.load("all-MiniLM-L6-v2")
    vectors = engine.encode(["a first sentence", "a second one"])        # float32 [2, 384]
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .engine import Engine
from .errors import BackendUnavailable, EngineError, InputError, UnsupportedError, WeightsError

if TYPE_CHECKING:
    from . import ops

__version__ = "0.1.0"

__all__ = [
    "BackendUnavailable",
    "Engine",
    "EngineError",
    "InputError",
    "UnsupportedError",
    "WeightsError",
    "ops",
]


def __getattr__(name: str) -> Any:
    # `engine.ops` is imported at its first use, so that `import engine` stays fast.
    if name == "ops":
        return import_module(".ops", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
