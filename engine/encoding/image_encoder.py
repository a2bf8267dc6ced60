"""Encode images with a plan: pixels, patches, layers, pooling. `Engine.encode` and `classify` call this for images."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from ..base.errors import InputError, UnsupportedError
from ..base.stop import NEVER, Stop
from ..images import Images
from ..model.image_config import ImageConfig
from ..queues.work import Pieces
from ..text.tokens import Tokens, merge_tokens, note_tokens
from ..weights.attention_pooling import AttentionPooling
from ..weights.input_layers import CutImage, Patches
from .packing import pack_embeds
from .vector_encoder import Packed, VectorEncoder

POOLING = ("cls",)
"""The vector of an image is that of its class token."""
NO_SETTINGS = ("the files of this model have no preprocessor_config.json, which says what sizes and numbers images "
               "need; copy it from the model's source, or give forward(pixel_values=...) images that are resized and "
               "normalised")
"""The message of a model without settings of images."""


class ImageEncoder(VectorEncoder):
    """Encodes images with one plan, as the model's settings of images say.

    Several threads may use it at once. The arguments of its methods have been checked.
    """

    def __init__(self, *args: Any, stem: Patches, images: ImageConfig | None, threads: int,
                 head: AttentionPooling | None, **options: Any):
        """args, options: those of `VectorEncoder`. stem: makes the input of the first layer from pixels. images: how an
        image becomes pixels; None if the files of the model do not say it. threads: to read images with. head: computes
        the vector of an image; None for that of the class token."""
        super().__init__(*args, pooling=POOLING, **options)
        self._stem, self.settings, self._threads, self._head = stem, images, threads, head
        if head is not None:
            self._pooling_plan = None       # it would pool by `POOLING`, in place of the head

    def pooled(self, vectors: np.ndarray, cu_seqlens: np.ndarray, skip: int | np.ndarray) -> np.ndarray:
        """Return one vector for each image [B, D], from the vectors [N, D] of its tokens. skip: 0 for images."""
        if self._head is None:
            return super().pooled(vectors, cu_seqlens, skip)
        assert self._ops is not None
        return self._head(vectors, cu_seqlens.tolist(), self._ops)

    def tokens(self, images: Images, stop: Stop = NEVER) -> Tokens:
        """Return the inputs of the first layer for images, as `Tokens.embeds`: the first of three steps of
        `Engine.encode`. All are made at once; the caller bounds the memory by `Images.parts`.
        """
        if self.settings is None:
            raise UnsupportedError(NO_SETTINGS)
        assert self._ops is not None
        pixels = images.pixels(self.settings, self._threads, stop)
        embeds = self._stem.embed(self._cuts(images, pixels, stop), self._ops)
        ids = [np.zeros(len(vectors), np.int32) for vectors in embeds]      # only their lengths are read
        note_tokens(map(len, ids))
        return Tokens(ids, ids, embeds=embeds)

    def _cuts(self, images: Images, pixels: Iterable[np.ndarray], stop: Stop) -> Iterator[CutImage]:
        """Yield the patches of images, one image at a time; an error names the image."""
        for i, image_pixels in enumerate(pixels):
            stop.check()
            with images.named(i):
                yield self._stem.cut(image_pixels)

    def _pack(self, pieces: Pieces) -> tuple[int, Packed]:
        """Return (number of tokens, batch) of images of one call or several, for the queue."""
        tokens = merge_tokens([(work.data, numbers) for work, numbers in pieces])
        assert tokens.embeds is not None
        batch, form = pack_embeds(self._config, tokens.embeds)
        return batch.tokens, Packed(tokens, batch, form)

    def _check_longest(self, tokens: Tokens, lengths: Sequence[int]) -> None:
        """Raise `InputError` if an image has more tokens than the plan computes at a time."""
        most, longest = self._plan.longest, max(lengths, default=0)
        if most is not None and longest > most:
            raise InputError(f"an image has {longest:,} tokens for this model, and max_batch_tokens={most} bounds what "
                             "is computed together; load the model with a larger max_batch_tokens")
