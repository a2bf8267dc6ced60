"""The golden generating models, run by the reference in float64."""

import numpy as np

from engine import Model
from engine.backends.reference import ReferenceBackend
from engine.backends.steps import Row
from engine.encoding.packing import pack
from engine.generation.encoder_decoder import SourceStepper
from engine.generation.results import Request
from engine.model.run_config import RunConfig

from .paths import DECODERS as GOLDEN
from .step_queues import generate

NAMES = sorted(path.parent.name for path in GOLDEN.glob("*/expected.npz"))
LONG_CONTEXT = ("phi3_long", "phi3_partial")
"""Models whose golden sequences need the table of positions for long ones."""
PROMPT = 3
"""Tokens of the prompt of a model without an encoder, as generating.py has it."""


class Expected:
    """The contents of an expected.npz."""

    def __init__(self, name):
        with np.load(GOLDEN / name / "expected.npz") as file:
            arrays = dict(file)
        self.cross = [arrays[f"cross_{i}"] for i in range(4) if f"cross_{i}" in arrays]
        """The weights of cross-attention [L,H,T,S] of the first sequences."""
        self.sequences = [(arrays.get(f"source_{i}"), arrays[f"ids_{i}"].astype(np.int64), arrays[f"logits_{i}"],
                           arrays[f"greedy_{i}"].tolist()) for i in range(4)]  # fmt: skip


class Exact:
    """A model in float64."""

    def __init__(self, model: Model):
        self.model, backend, run = model, ReferenceBackend(np.float64), RunConfig()
        self.decoder = backend.prepare_decoder(model.decoder.config, model.decoder.weights, run)
        self.encoder = None
        if model.encoder is not None:
            self.encoder = backend.prepare(model.encoder.config, model.encoder.weights, run)
        self.ops = backend.ops(1)

    def forward(self, batch, stop=None):
        """Return the vectors of the encoder as a plan does, in float64."""
        return self.encoder.forward_unrounded(batch)

    def logits(self, source, ids):
        """Return the logits [T, V] after each id, given all of them."""
        return self.decoder.step_unrounded([Row(self.opened(source), None, ids, len(ids))])[1]

    def cross(self, source, ids, heads):
        """Return the weights of cross-attention [heads, T, S] of each id."""
        return self.decoder.attention_weights_unrounded(self.opened(source), ids, heads)

    def opened(self, source):
        """Return a request of the decoder that has read a source: ids, features of sound, or None."""
        request = self.decoder.open()
        if source is not None:
            batch = self.batch(source)
            self.decoder.cache_sources([request], self.forward(batch), batch.cu_seqlens)
        return request

    def batch(self, source):
        """Return what the encoder reads of a source."""
        if source.ndim == 2:
            vectors = self.model.encoder.stem.embed(source, self.ops)
            return pack(self.model.encoder.config, inputs_embeds=vectors[None])[0]
        return pack(self.model.encoder.config, [source.astype(np.int64)])[0]

    def greedy(self, source, ids, steps):
        """Return the new tokens that the model's own settings give."""
        config = self.model.generation.changed(max_new_tokens=steps, forced_eos_token_id=None)
        encoder = None if self.encoder is None else self
        stepper = SourceStepper(self.decoder, encoder, self.model.encoder.config if self.model.encoder else None)
        given = None if source is None else source.tolist()
        [[result]] = generate(stepper, [Request(given, ids[:PROMPT].tolist() if source is None else None, config)])
        return list(result.ids)
