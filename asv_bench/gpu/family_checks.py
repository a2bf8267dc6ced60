"""Check the small models of every family of encoders, whole, and the bits of a sequence alone and beside others."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np

from engine import load_model
from engine.backends.numba_cuda.device import Device
from engine.backends.numba_cuda.plan import CudaPlan
from engine.backends.reference import ReferenceBackend
from engine.model.config import ModelConfig
from engine.model.run_config import RunConfig
from tests.families.cases import CASES
from tests.tools.batches import make_batch
from tests.tools.golden_models import ENCODERS
from tests.tools.paths import ENCODERS as FOLDER

from .check import MODEL, Check

BOUNDS = {"bfloat16": MODEL, "float32": 1e-5}
LENGTHS = [11, 2, 16]


def family_checks(others: bool, small: bool) -> Iterator[Check]:
    """Yield checks of golden encoders in both precisions, and of their bits in bfloat16.

    others: False for the first encoder of each family, True for all the others
    """
    first = [case.golden[0] for case in CASES if case.golden]
    chosen = [name for name in ENCODERS if name not in first] if others else first
    for name in chosen[:1] if small else chosen:
        for precision, bound in BOUNDS.items():
            yield Check(f"{name} {precision}", bound, partial(run_family, name, precision, small))
        yield Check(f"bits of {name}", 0.0, partial(run_company, name, small))


@cache
def model(name: str, short: bool) -> tuple[ModelConfig, Any]:
    """Return the config and the weights of a golden encoder; short: with its first layer alone."""
    loaded = load_model(FOLDER / name, kind="encode")
    encoder = loaded.encoder or next(iter(loaded.routes.values()))
    config = encoder.config
    if short:
        config = replace(config, num_layers=1, layer_kinds=config.layer_kinds[:1], weight_sets=config.weight_sets[:1])
    return config, encoder.weights


def plan_of(name: str, precision: str, short: bool, device: Device) -> CudaPlan:
    """Return a golden encoder on the device."""
    return CudaPlan(device, *model(name, short), RunConfig(1, precision, sum(LENGTHS)))


def run_family(name: str, precision: str, short: bool, device: Device) -> tuple[np.ndarray, np.ndarray]:
    """Run a golden encoder twice, so that the second pass replays what the first has recorded."""
    config, weights = model(name, short)
    batch, plan = make_batch(config, LENGTHS), plan_of(name, precision, short, device)
    plan.forward(batch)
    exact = ReferenceBackend(np.float64).prepare(config, weights, RunConfig()).forward_unrounded(batch)
    return plan.forward(batch), exact


def run_company(name: str, short: bool, device: Device) -> tuple[np.ndarray, np.ndarray]:
    """Run a sequence beside others and alone: the bits are the same."""
    config, _ = model(name, short)
    plan, together = plan_of(name, "bfloat16", short, device), make_batch(config, LENGTHS)
    n = LENGTHS[0]
    own = replace(together, cu_seqlens=together.cu_seqlens[:2], **{
        part: None if (array := getattr(together, part)) is None else array[:n]
        for part in ("input_ids", "inputs_embeds", "position_ids", "token_type_ids")})
    return plan.forward(together)[:n], plan.forward(own)
