"""Images for tests, made by Pillow: every mode, turned by EXIF, tiny, long; and processors.

Nothing here needs the engine.
"""

import io
from typing import Any

import numpy as np
from PIL import Image

PROCESSORS: dict[str, dict[str, Any]] = {
    "vit": {"image_processor_type": "ViTImageProcessor", "size": {"height": 32, "width": 32}},
    "deit": {"feature_extractor_type": "DeiTFeatureExtractor", "size": 37, "crop_size": 31, "resample": 3},
    "dinov2": {"image_processor_type": "BitImageProcessor", "size": {"shortest_edge": 36},
               "crop_size": {"height": 40, "width": 31}, "resample": 1, "image_mean": [0.485, 0.456, 0.406],
               "image_std": [0.229, 0.224, 0.225]},
    "clip": {"feature_extractor_type": "CLIPFeatureExtractor", "size": 33, "crop_size": 33, "do_convert_rgb": True},
    "siglip": {"image_processor_type": "SiglipImageProcessor", "size": {"height": 24, "width": 30}, "resample": 2,
               "do_rescale": True, "rescale_factor": 0.00392156862745098},
}
"""The preprocessor_config.json of five models, with tiny sizes and the forms of several years."""


def picture(height: int, width: int, channels: int = 3, seed: int = 0) -> np.ndarray:
    """Return a picture with slopes and noise: uint8 [height, width, channels], or [height, width] of one channel."""
    rng = np.random.default_rng(seed)
    rows, columns = np.mgrid[0:height, 0:width]
    slopes = np.stack([(rows * (3 + c) + columns * (7 - c)) % 256 for c in range(channels)], axis=2)
    pixels = np.clip(slopes + rng.integers(-20, 21, slopes.shape), 0, 255).astype(np.uint8)
    return pixels if channels > 1 else pixels[:, :, 0]


def saved(image: Image.Image, kind: str, **options: Any) -> bytes:
    """Return the file of an image."""
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def make_images() -> dict[str, Any]:
    """Return 40 images by their names: the bytes of files, images of Pillow, and arrays."""
    rgb, grey = Image.fromarray(picture(45, 60)), Image.fromarray(picture(50, 41, 1))
    rgba = Image.fromarray(picture(37, 52, 4))
    palette = rgb.quantize(40)
    found: dict[str, Any] = {
        "rgb.png": saved(rgb, "PNG"), "rgb.bmp": saved(rgb, "BMP"), "rgb.tiff": saved(rgb, "TIFF"),
        "rgb_lzw.tiff": saved(rgb, "TIFF", compression="tiff_lzw"), "rgb.webp": saved(rgb, "WEBP", lossless=True),
        "rgb.jpg": saved(rgb, "JPEG", quality=90), "progressive.jpg": saved(rgb, "JPEG", progressive=True),
        "grey.png": saved(grey, "PNG"), "grey.jpg": saved(grey, "JPEG"), "grey.bmp": saved(grey, "BMP"),
        "grey.tiff": saved(grey, "TIFF"), "grey_alpha.png": saved(grey.convert("LA"), "PNG"),
        "bits.png": saved(grey.convert("1"), "PNG"), "bits.tiff": saved(grey.convert("1"), "TIFF"),
        "rgba.png": saved(rgba, "PNG"), "rgba.webp": saved(rgba, "WEBP", lossless=True, exact=True),
        "rgba.tiff": saved(rgba, "TIFF"), "palette.png": saved(palette, "PNG"), "palette.gif": saved(palette, "GIF"),
        "palette.bmp": saved(palette, "BMP"), "clear.png": saved(palette, "PNG", transparency=bytes(range(40))),
        "clear.gif": saved(palette, "GIF", transparency=3),
        "cmyk.jpg": saved(rgb.convert("CMYK"), "JPEG"), "cmyk.tiff": saved(rgb.convert("CMYK"), "TIFF"),
        "one.png": saved(Image.fromarray(picture(1, 1)), "PNG"),
        "row.png": saved(Image.fromarray(picture(1, 9)), "PNG"),
        "column.png": saved(Image.fromarray(picture(50, 1)), "PNG"),
        "long.png": saved(Image.fromarray(picture(30, 4000)), "PNG"),
        "high.png": saved(Image.fromarray(picture(700, 20)), "PNG"),
        "small.png": saved(Image.fromarray(picture(20, 23)), "PNG"),
        "odd.png": saved(Image.fromarray(picture(33, 36)), "PNG"),
        "exact.png": saved(Image.fromarray(picture(32, 32)), "PNG"),
        "large.png": saved(Image.fromarray(picture(480, 333)), "PNG"),
    }
    for turn in (2, 3, 5, 6, 8):
        exif = Image.Exif()
        exif[0x0112] = turn
        found[f"turned_{turn}.{'jpg' if turn % 2 else 'png'}"] = saved(rgb, "JPEG" if turn % 2 else "PNG", exif=exif)
    return found | {"hsv": rgb.convert("HSV"), "array": picture(29, 40)}
