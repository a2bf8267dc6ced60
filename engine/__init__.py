"""Run transformers on CPUs from exported weights, without a deep learning framework.

    import engine

    encoder = engine.load("sentence-transformers/all-MiniLM-L6-v2")       # an Engine: it holds an encoder
    vectors = encoder.encode(["a first sentence", "a second one"])        # float32 [2, 384]

    generator = engine.load("Helsinki-NLP/opus-mt-en-de")                  # a Generator
    generator.translate(["A sentence."], num_beams=4)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .base.errors import (
    BackendUnavailable,
    Cancelled,
    EngineError,
    HubError,
    InputError,
    TimedOut,
    UnsupportedError,
    WeightsError,
)
from .base.version import __version__ as __version__

if TYPE_CHECKING:
    from . import ops
    from .backends.peak import forward_flops, measure_peak
    from .encoding.outputs import ForwardOutput
    from .files.torch_checkpoint import read_checkpoint
    from .files.torch_pickle import read_pickle
    from .interface.engine import Engine
    from .interface.generator import Generator
    from .interface.load import load
    from .interface.reranker import Reranker
    from .interface.transcriber import Transcriber
    from .loading.load import load_model
    from .loading.npz_model import save
    from .loading.torch_modules import read_pytorch_seq2seq, read_torch_transformer
    from .model.attention import AttentionKind
    from .model.config import ModelConfig
    from .model.generation_config import GenerationConfig
    from .model.text_config import TextConfig
    from .speech.audio_files import read_audio, read_wav
    from .speech.resampling import resample
    from .studies.calibrate import CalibrationReport, calibrate
    from .studies.importance import measure_importance
    from .uncertainty import plot
    from .weights.calibration import Calibration
    from .weights.model import Model, Transformer
    from .weights.parameters import expected_shapes
    from .weights.quantize import convert_model

__all__ = [
    "AttentionKind", "BackendUnavailable", "Calibration", "CalibrationReport", "Cancelled", "Engine", "EngineError",
    "ForwardOutput", "GenerationConfig", "Generator", "HubError", "InputError", "Model", "ModelConfig", "Reranker",
    "TextConfig", "TimedOut", "Transcriber", "Transformer", "UnsupportedError", "WeightsError", "calibrate",
    "convert_model", "expected_shapes", "forward_flops", "load", "load_model", "measure_importance",
    "measure_peak", "ops", "plot", "read_audio", "read_checkpoint", "read_pickle", "read_pytorch_seq2seq",
    "read_torch_transformer", "read_wav", "resample", "save",
]

_LAZY = {
    "AttentionKind": "model.attention", "Calibration": "weights.calibration", "CalibrationReport": "studies.calibrate",
    "Engine": "interface.engine", "ForwardOutput": "encoding.outputs", "GenerationConfig": "model.generation_config",
    "Generator": "interface.generator", "Model": "weights.model", "ModelConfig": "model.config",
    "Reranker": "interface.reranker", "TextConfig": "model.text_config", "Transcriber": "interface.transcriber",
    "Transformer": "weights.model", "calibrate": "studies.calibrate", "convert_model": "weights.quantize",
    "expected_shapes": "weights.parameters", "forward_flops": "backends.peak", "load": "interface.load",
    "load_model": "loading.load", "measure_importance": "studies.importance", "measure_peak": "backends.peak",
    "read_audio": "speech.audio_files", "read_checkpoint": "files.torch_checkpoint",
    "read_pickle": "files.torch_pickle", "read_pytorch_seq2seq": "loading.torch_modules",
    "read_torch_transformer": "loading.torch_modules", "read_wav": "speech.audio_files",
    "resample": "speech.resampling", "save": "loading.npz_model",
}
"""The modules that define public names which are imported at their first use, so that `import engine` is fast."""

_MODULES = {"ops": ".ops", "plot": ".uncertainty.plot"}
"""The public names that are modules; they are imported at their first use, too."""


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return globals().setdefault(name, getattr(import_module(f".{_LAZY[name]}", __name__), name))    # asked once
    if name in _MODULES:
        return import_module(_MODULES[name], __name__)
    from .base.advice.attributes import MODULE

    advice = f"; {MODULE[name]}" if name in MODULE else ""
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}{advice}")
