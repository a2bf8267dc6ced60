"""Transformer encoders on CPUs, from exported weights, without a framework.

from engine import Engine

engine = Engine.load("all-MiniLM-L6-v2")
vectors = engine.encode(["a first sentence", "a second one"])        # float32 [2, 384]
"""

from .engine import Engine
from .errors import BackendUnavailable, EngineError, InputError, UnsupportedError, WeightsError

__version__ = "0.1.0"

__all__ = [
    "BackendUnavailable",
    "Engine",
    "EngineError",
    "InputError",
    "UnsupportedError",
    "WeightsError",
]
