"""Read how images become the pixels that a model reads, from preprocessor_config.json in the forms of all versions.

The defaults are those of the image processors of transformers 5, under their older names too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..base.arguments import is_number
from ..base.errors import UnsupportedError, WeightsError, listed, shown
from ..files.folder import ModelFolder
from ..model.image_config import FILTERS, ImageConfig
from .other_libraries import CONFIG

SETTINGS, ALL_SETTINGS = "preprocessor_config.json", "processor_config.json"
"""The file of an image processor, and the file of all processors of a model, which may hold the same under a key."""
_INSIDE = "image_processor"        # that key
_STANDARD = {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}
_CLIP = {"image_mean": [0.48145466, 0.4578275, 0.40821073], "image_std": [0.26862954, 0.26130258, 0.27577711]}
_ALL = {"do_resize": True, "do_center_crop": False, "do_rescale": True, "do_normalize": True, "rescale_factor": 1 / 255,
        "do_pad": False, "default_to_square": True, "do_convert_rgb": False}
_CROPPED = _ALL | _CLIP | {"size": {"shortest_edge": 224}, "crop_size": {"height": 224, "width": 224},
                           "do_center_crop": True, "resample": 3, "do_convert_rgb": True}
"""What several processors share: the numbers by which colors are normalised, the switches, and the sizes with a
crop."""
PROCESSORS: dict[str, dict[str, Any]] = {
    "ViT": _ALL | _STANDARD | {"size": {"height": 224, "width": 224}, "resample": 2},
    "DeiT": _ALL | _STANDARD | {"size": {"height": 256, "width": 256}, "crop_size": {"height": 224, "width": 224},
                                "do_center_crop": True, "resample": 3},
    "Bit": _CROPPED,
    "CLIP": _CROPPED | {"default_to_square": False},
    "Siglip": _ALL | _STANDARD | {"size": {"height": 224, "width": 224}, "resample": 3, "default_to_square": False,
                                  "do_convert_rgb": True},
}
"""The settings of each image processor where a file does not state them, by the beginning of its class."""
_OF_MODEL = {"vit": "ViT", "deit": "DeiT", "dinov2": "Bit", "dinov2_with_registers": "Bit", "clip": "CLIP",
             "clip_vision_model": "CLIP", "siglip": "Siglip", "siglip_vision_model": "Siglip"}
"""The processor of a model_type, for a file that names none."""
_ENDS = ("ImageProcessorFast", "ImageProcessorPil", "ImageProcessor", "FeatureExtractor")
"""Ends of the names of classes, before which the name of the processor stands."""


def image_files(folder: ModelFolder) -> list[str]:
    """Return the names of the files in a folder that `read_image_settings` may read; none for another model."""
    model_type = folder.read_object_or_empty(CONFIG).get("model_type")
    known = isinstance(model_type, str) and model_type in _OF_MODEL
    return [name for name in (ALL_SETTINGS, SETTINGS) if known and folder.has(name)]


def read_image_settings(folder: ModelFolder, model_type: str) -> ImageConfig | None:
    """Return how images become the pixels that a model reads; None if the folder does not state it.

    Raises `WeightsError` for impossible settings, and `UnsupportedError` for a processor that the engine lacks.
    """
    for name in (ALL_SETTINGS, SETTINGS):
        if not folder.has(name):
            continue
        values: Any = folder.read_object(name)
        if name == ALL_SETTINGS:
            values = values.get(_INSIDE)
        if not isinstance(values, Mapping):
            continue
        with folder.within(name):
            return _config_of(values, model_type)
    return None


def _config_of(values: Mapping[str, Any], model_type: str) -> ImageConfig:
    """Return the settings of images from the contents of an image processor's file; raises as its caller says."""
    usual = PROCESSORS[_processor_of(values, model_type)]
    stated = usual | {key: value for key, value in values.items() if value is not None}
    flags = {key: stated[key] for key in ("do_resize", "do_center_crop", "do_rescale", "do_normalize", "do_pad",
                                          "default_to_square", "do_convert_rgb")}
    if wrong := [key for key, value in flags.items() if not isinstance(value, bool)]:
        raise WeightsError(f"{listed(wrong)} must be true or false, not {shown(flags[wrong[0]])}")
    if flags["do_pad"] or stated.get("use_square_size"):
        raise UnsupportedError("do_pad and use_square_size are not supported; only false is")
    options: dict[str, Any] = {"whitens": flags["do_convert_rgb"]}
    if flags["do_resize"]:
        options |= _size_of(stated["size"], square=flags["default_to_square"])
        options["resample"] = _filter_of(stated["resample"])
    if flags["do_center_crop"]:
        crop = _size_of(stated.get("crop_size"), square=True, key="crop_size")
        if "size" not in crop:
            raise WeightsError(f"crop_size must have height and width, not {shown(stated.get('crop_size'))}")
        options["crop"] = crop["size"]
    options["factor"] = _number("rescale_factor", stated["rescale_factor"]) if flags["do_rescale"] else 1.0
    if flags["do_normalize"]:
        options |= {"mean": _three("image_mean", stated["image_mean"]), "std": _three("image_std", stated["image_std"])}
    return ImageConfig(**options)


def _processor_of(values: Mapping[str, Any], model_type: str) -> str:
    """Return the key of `PROCESSORS` for a file; raises `UnsupportedError`."""
    stated = values.get("image_processor_type") or values.get("feature_extractor_type")
    if stated is None:
        return _OF_MODEL[model_type]
    name = str(stated)
    for end in _ENDS:
        if name.endswith(end):
            name = name.removesuffix(end)
            break
    if not isinstance(stated, str) or name not in PROCESSORS:
        known = ", ".join(f"{one}ImageProcessor" for one in PROCESSORS)
        raise UnsupportedError(f"the image processor {shown(stated)} is not supported; supported are {known}")
    return name


def _size_of(value: Any, square: bool, key: str = "size") -> dict[str, Any]:
    """Return the options of `ImageConfig` for a size in pixels: a number, two numbers, or an object with their names.

    square: whether a single number is the length of both sides, and not of the shorter one. key: for messages.
    """
    if type(value) is int:
        return {"size": (value, value)} if square else {"shortest_edge": value}
    if isinstance(value, list) and len(value) == 2:
        return {"size": (value[0], value[1])}
    if isinstance(value, Mapping):
        value = {name: number for name, number in value.items() if number is not None}
        if value.keys() == {"height", "width"}:
            return {"size": (value["height"], value["width"])}
        if value.keys() in ({"shortest_edge"}, {"shortest_edge", "longest_edge"}):
            return dict(value)
        if value.keys() <= {"longest_edge", "max_height", "max_width", "min_pixels", "max_pixels"} and value:
            raise UnsupportedError(f"{key} with {listed(value)} is not supported; supported are height with width, and "
                                   "shortest_edge with or without longest_edge")
    raise WeightsError(f"{key} must be a number, two numbers, or an object with height and width, or with "
                       f"shortest_edge, not {shown(value)}")


def _filter_of(value: Any) -> str:
    """Return the name of a filter by Pillow's number; raises `WeightsError`."""
    if type(value) is not int or not 0 <= value < len(FILTERS):
        known = ", ".join(f"{number} for {name}" for number, name in enumerate(FILTERS))
        raise WeightsError(f"resample must be a number, {known}, not {shown(value)}")
    return FILTERS[value]


def _number(key: str, value: Any) -> float:
    """Return the number under a key as a float; raises `WeightsError` unless it is one of at most 1e6."""
    if not is_number(value) or not abs(value) <= 1e6:
        raise WeightsError(f"{key} must be a number, not {shown(value)}")
    return float(value)


def _three(key: str, value: Any) -> tuple[float, ...]:
    """Return the numbers of red, green and blue under a key, where one number may stand for all three."""
    numbers = value if isinstance(value, list) else [value] * 3
    if len(numbers) != 3:
        raise WeightsError(f"{key} must be a number or three numbers, not {shown(value)}")
    return tuple(_number(key, number) for number in numbers)
