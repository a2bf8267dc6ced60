"""Measure the encoding of images by ViT-B/16: arrays, and JPEG files, which threads read beside the passes."""

from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image

from engine import Model, save
from engine.families import vit
from engine.model.image_config import ImageConfig
from engine.weights.input_layers import Patches

from .models import load, random_model

CONFIG = vit.read_config({"model_type": "vit", "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
                          "intermediate_size": 3072})
READ, PATCH = 224, 16
"""The side of an image as the model reads it, and of a patch."""
COUNT, SIDE = 256, 1000
"""The images of a call, and the side of a file."""


class Images:
    """Reading files should cost at most 10 % of the rate: 256 files take at most 1.11 of the time of 256 arrays."""

    params = (["arrays", "files"], ["float32", "bfloat16"], [1, 2])
    param_names = ("images", "precision", "threads")
    timeout = 900

    def setup_cache(self):
        """Write ViT-B/16 with random weights, and JPEG files; return their paths."""
        path, rng = Path("vit.npz").absolute(), np.random.default_rng(0)
        save(Model(encoder=random_vit(rng)), path)
        files = [path.with_name(f"{i}.jpg") for i in range(COUNT)]
        for file in files:
            write_photograph(file, rng)
        return path, files

    def setup(self, paths, images, precision, threads):
        path, files = paths
        arrays = np.random.default_rng(0).integers(0, 256, (COUNT, READ, READ, 3), np.uint8)
        self.images = files if images == "files" else [*arrays]
        self.engine = load(path, threads, precision)
        self.engine.encode(self.images[:1])

    def time_encode(self, paths, images, precision, threads):
        self.engine.encode(self.images)


def random_vit(rng):
    """Return ViT-B/16 with random weights."""
    def numbers(*shape):
        return rng.standard_normal(shape, np.float32) * np.float32(0.03)

    width, patches = CONFIG.hidden_size, (READ // PATCH) ** 2
    stem = Patches(numbers(width, 3, PATCH, PATCH), numbers(width), numbers(1 + patches, width), numbers(1, width))
    return replace(random_model(CONFIG), text=None, stem=stem,
                   images=ImageConfig(size=(READ, READ), mean=(0.5,) * 3, std=(0.5,) * 3))


def write_photograph(path, rng):
    """Write a JPEG file that is as smooth as a photograph: noise of 125 x 125 pixels, made larger."""
    noise = Image.fromarray(rng.integers(0, 256, (SIDE // 8, SIDE // 8, 3), np.uint8))
    noise.resize((SIDE, SIDE), Image.Resampling.BICUBIC).save(path, quality=90)
