"""The pages of the API reference: which public name is on which page, in the order in which a user needs them.

A test checks that each public name of `engine`, `engine.ops` and `engine.plot` is on one page.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple


class Page(NamedTuple):
    """One page of the reference."""

    file: str
    title: str
    text: str
    """What stands above the names, in Markdown."""
    names: tuple[str, ...]


PAGES = (
    Page("engine", "Engine", "Texts, token ids, images and audio to vectors; labels, tags, answers and ranks. "
         "[Choose](../docs/choose.md) says when you need this class.",
         ("engine.load", "engine.Engine", "engine.ForwardOutput")),
    Page("generator", "Generator",
         "Translation, summaries and language models: [Generate tokens](../docs/generate.md), [Chat](../docs/chat.md).",
         ("engine.Generator", "engine.GenerationConfig")),
    Page("transcriber", "Transcriber", "Speech to text: [Transcribe speech](../docs/speech.md).",
         ("engine.Transcriber", "engine.read_audio", "engine.read_wav", "engine.resample")),
    Page("reranker", "Reranker", "Documents in the order in which they fit a query: "
         "[Rank documents](../docs/generate.md#rank-documents).", ("engine.Reranker",)),
    Page("ops", "Single operations", "Operations on NumPy arrays: [Single operations](../docs/ops.md) has examples.",
         tuple(f"engine.ops.{name}" for name in (
             "attention", "multi_head_attention", "encoder_layer", "linear", "ffn", "softmax", "layer_norm", "rms_norm",
             "gelu", "relu", "silu", "rotary", "alibi_slopes", "relative_position_bias"))),
    Page("errors", "Errors", "Every error that the engine raises on purpose is an `EngineError`.",
         tuple(f"engine.{name}" for name in (
             "EngineError", "InputError", "WeightsError", "UnsupportedError", "HubError", "TimedOut", "Cancelled",
             "BackendUnavailable"))),
    Page("calibration", "Calibration", "Calibrated probabilities and sets of labels: "
         "[How sure is it?](../docs/uncertainty.md).",
         ("engine.calibrate", "engine.Calibration", "engine.CalibrationReport")),
    Page("models", "Models and files", "A model in memory, its configuration, and the files that hold it: "
         "[The .npz format](../docs/npz.md).",
         tuple(f"engine.{name}" for name in (
             "load_model", "save", "convert_model", "measure_importance", "Model", "Transformer", "ModelConfig",
             "AttentionKind", "TextConfig", "expected_shapes", "read_checkpoint", "read_pickle",
             "read_torch_transformer", "read_pytorch_seq2seq"))),
    Page("measure", "Pictures and measures", "Pictures of attention and of calibration, and the limits of a machine.",
         ("engine.plot.attention", "engine.plot.heads", "engine.plot.reliability", "engine.measure_peak",
          "engine.forward_flops")),
)  # fmt: skip


FIRST = ("load", "encode", "encode_query", "encode_document", "similarity", "forward", "generate", "translate",
         "stream", "chat", "stream_chat", "apply_chat_template", "rank", "predict", "transcribe",
         "classify", "tag", "answer", "fill_mask")
"""The methods that stand first in a class, in this order. The others follow as the code has them, with those of base
classes before its own."""
HIDDEN = ("runner_of",)
"""Methods for other modules of the engine."""


def in_order(members: Iterable[str]) -> list[str]:
    """Return the public members of a class in the order of its page."""
    shown = [name for name in members if not name.startswith("_") and name not in HIDDEN]
    return sorted(shown, key=lambda name: FIRST.index(name) if name in FIRST else len(FIRST))


@cache
def package() -> Any:
    """Return what griffe, which `make docs` installs, reads in the package."""
    import griffe

    return griffe.load("engine", search_paths=[str(Path(__file__).parents[2])])


def options(name: str) -> str:
    """Return the options of a name for mkdocstrings: of a class, its members in order."""
    found = package()[name.removeprefix("engine.")]
    if not found.is_class:
        return ""
    members = in_order(each for each, value in found.all_members.items() if value.has_docstring)
    return f"    options:\n      members: [{', '.join(members)}]\n" if members else ""


def markdown(page: Page) -> str:
    """Return the source of a page, which mkdocstrings fills."""
    return f"# {page.title}\n\n{page.text}\n" + "".join(f"\n::: {name}\n{options(name)}" for name in page.names)
