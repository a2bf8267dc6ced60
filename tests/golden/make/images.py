"""Make the golden files of images: pixels of transformers' processors, and tiny models that give images labels.

    python -m tests.golden.make.images [pixels | NAME ...]

tests/golden/images/pixels.npz has, for each processor of tests/tools/image_files.py, the pixels of every image in the
middle row, float32 [images, 3, W], and pixels.json a digest of all pixels. A folder beside it has a model, its
preprocessor_config.json, and in expected.json what transformers makes of `SHOWN`: the vectors, and the labels with
their scores, computed in float64. The processors are those on Pillow. The script stops if the pipeline of
transformers gives other labels, or if a mistake would not show.
"""

import hashlib
import io
import json
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
import torch
import transformers as hf
from PIL import Image
from transformers.image_utils import load_image

from tests.tools.image_files import PROCESSORS, make_images
from tests.tools.paths import IMAGES

from .quiet import one_quiet_thread

SHOWN = ("rgb.png", "grey.jpg", "long.png", "turned_6.png", "one.png", "large.png")
"""The images whose labels are on record."""
LABELS = {i: f"label {i}" for i in range(7)}
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "image_size": 24, "patch_size": 8,
         "id2label": LABELS, "label2id": {label: i for i, label in LABELS.items()}}
CROPPED = {"image_processor_type": "BitImageProcessor", "size": {"shortest_edge": 28}, "crop_size": 25}
MODELS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "vit": ("ViTForImageClassification", {"intermediate_size": 48}, PROCESSORS["vit"] | {"size": 24}),
    "vit_several": ("ViTForImageClassification", {
        "intermediate_size": 48, "problem_type": "multi_label_classification"}, PROCESSORS["vit"] | {"size": 24}),
    "deit": ("DeiTForImageClassification", {"intermediate_size": 48}, PROCESSORS["deit"] | {"crop_size": 24}),
    "deit_teacher": ("DeiTForImageClassificationWithTeacher", {"intermediate_size": 48},
                     PROCESSORS["deit"] | {"crop_size": 24}),
    "dinov2": ("Dinov2ForImageClassification", {"mlp_ratio": 2}, CROPPED),
    "dinov2_registers": ("Dinov2WithRegistersForImageClassification", {"mlp_ratio": 2, "num_register_tokens": 3},
                         CROPPED),
}
"""The class, the config and the processor of each model."""
VISION = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2,
          "image_size": 24, "patch_size": 8}
TEXT = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2,
        "vocab_size": 120, "eos_token_id": 119, "max_position_embeddings": 40}
TOWERS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "clip": ("CLIPModel", {"vision_config": VISION, "text_config": TEXT, "projection_dim": 20},
             PROCESSORS["clip"] | {"size": 27, "crop_size": 24}),
    "siglip": ("SiglipModel", {"vision_config": VISION, "text_config": TEXT | {
        "hidden_size": 32, "projection_size": 32, "pad_token_id": 1}},
        PROCESSORS["siglip"] | {"size": {"height": 24, "width": 24}}),
    "clip_projected": ("CLIPVisionModelWithProjection", VISION | {"projection_dim": 12, "hidden_act": "gelu"},
                       PROCESSORS["clip"] | {"size": 27, "crop_size": 24}),
}
"""The class, the config and the processor of each model that compares images with texts."""
WORDS = (17, 33, 64, 101)
"""The labels of images, by the ids of their words, behind the words 9 and 10."""


def opened(source: Any) -> Image.Image:
    """Return an image as the pipelines of transformers read a file."""
    if isinstance(source, bytes):
        source = Image.open(io.BytesIO(source))
    elif isinstance(source, np.ndarray):
        source = Image.fromarray(source)
    image: Image.Image = load_image(source)
    return image


def processor_of(values: dict[str, Any]) -> Any:
    """Return a processor of transformers on Pillow."""
    name = str(values.get("image_processor_type") or values["feature_extractor_type"])
    return getattr(hf, name.replace("FeatureExtractor", "ImageProcessor") + "Pil")(**values)


def pixels(processor: Any, source: Any) -> np.ndarray:
    """Return the pixels of an image: float32 [3, H, W]."""
    [found] = processor(images=[opened(source)], return_tensors="np")["pixel_values"]
    assert found.dtype == np.float32
    return np.ascontiguousarray(found)


def write_pixels() -> None:
    """Write pixels.npz and pixels.json."""
    rows, digests = {}, {}
    images = make_images()
    for name, values in PROCESSORS.items():
        processor = processor_of(values)
        found = {image: pixels(processor, source) for image, source in images.items()}
        rows[name] = np.stack([one[:, one.shape[1] // 2] for one in found.values()])
        digests[name] = {image: hashlib.sha256(one.tobytes()).hexdigest()[:16] for image, one in found.items()}
        if len({*digests[name].values()}) < len(found) // 2:
            raise SystemExit(f"{name}: too many images have the same pixels")
    np.savez_compressed(IMAGES / "pixels.npz", **rows)
    (IMAGES / "pixels.json").write_text(json.dumps(digests, indent=1) + "\n", encoding="utf-8")
    print(f"{len(images)} images, {len(PROCESSORS)} processors")


def random_numbers(model: Any) -> None:
    """Give a model random numbers that are large enough for a mistake to show."""
    torch.manual_seed(0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(1.0 if "norm" in name and name.endswith("weight") else 0.0, 0.2)


def saved(folder: Path, kind: str, options: dict[str, Any], values: dict[str, Any]) -> Any:
    """Write the folder of a model with random numbers, and return the model as it is read from there, in float64.

    kind: its class. options: of its config. values: of its processor.
    """
    classes = getattr(hf, kind)
    model = classes(classes.config_class(**options))
    random_numbers(model)
    model.save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")
    return classes.from_pretrained(folder, attn_implementation="eager").double().eval()


def write_model(name: str) -> None:
    """Write the folder of a model."""
    kind, options, values = MODELS[name]
    folder = IMAGES / name
    whole = saved(folder, kind, SIZES | options, values)
    processor, images = processor_of(values), make_images()
    given = {image: torch.from_numpy(pixels(processor, images[image])).double()[None] for image in SHOWN}
    expected = {}
    for image, batch in given.items():
        with torch.inference_mode():
            hidden = whole.base_model(batch).last_hidden_state[0]
            logits = whole(batch).logits[0]
        scores = logits.sigmoid() if whole.config.problem_type else logits.softmax(-1)
        order = scores.argsort(descending=True).tolist()
        expected[image] = {"vector": hidden[0].tolist(), "tokens": len(hidden),
                           "labels": [{"label": LABELS[i], "score": scores[i].item()} for i in order]}
        with torch.inference_mode():
            swapped = whole(batch.flip(1)).logits[0]
        if not image.startswith(("one", "grey")) and not (swapped - logits).abs().max() > 1e-3:
            raise SystemExit(f"{name}, {image}: blue in place of red would not show")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pipeline = hf.pipeline("image-classification", model=whole.float(), image_processor=processor)
        for image in SHOWN:
            best = pipeline(opened(images[image]), top_k=7)
            if [one["label"] for one in best] != [one["label"] for one in expected[image]["labels"]]:
                raise SystemExit(f"{name}, {image}: the pipeline gives other labels")
    (folder / "expected.json").write_text(json.dumps(expected) + "\n", encoding="utf-8")
    print(f"{name}: {', '.join(one['labels'][0]['label'] for one in expected.values())}")


def write_tokenizer(folder: Path) -> None:
    """Write a tokenizer whose word <17> has the id 17, with the special tokens of CLIP."""
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({f"<{i}>": i for i in range(120)}, unk_token="<0>"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    words.add_special_tokens(["<1>", "<3>", "<119>"])
    words.post_processor = tokenizers.processors.TemplateProcessing(
        single="<3> $A <119>", special_tokens=[("<3>", 3), ("<119>", 119)])
    words.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text('{"model_max_length": 40, "pad_token": "<1>"}\n', encoding="utf-8")


def write_tower(name: str) -> None:
    """Write the folder of a model that compares images with texts, and the vectors of images."""
    kind, options, values = TOWERS[name]
    folder = IMAGES / name
    whole = saved(folder, kind, options, values)
    processor, images = processor_of(values), make_images()
    expected: dict[str, Any] = {}
    if name != "clip_projected":
        write_tokenizer(folder)
        filled = [1] * 35 if name == "siglip" else []
        rows = [[3, 9, 10, word, 119, *filled] for word in WORDS]
    for image in SHOWN:
        batch = torch.from_numpy(pixels(processor, images[image])).double()[None]
        with torch.inference_mode():
            if name != "clip_projected":
                logits = whole(input_ids=torch.tensor(rows), pixel_values=batch).logits_per_image[0]
                scores = logits.sigmoid() if name == "siglip" else logits.softmax(-1)
                found = whole.get_image_features(batch).pooler_output
            else:
                found = whole(batch).image_embeds
        expected[image] = {"vector": found[0].tolist()}
        if name != "clip_projected":
            expected[image]["labels"] = [{"label": f"<{WORDS[i]}>", "score": scores[i].item()}
                                         for i in scores.argsort(descending=True).tolist()]
    (folder / "expected.json").write_text(json.dumps(expected) + "\n", encoding="utf-8")
    print(f"{name}: vectors of {len(expected['rgb.png']['vector'])} numbers")


if __name__ == "__main__":
    one_quiet_thread()
    for wanted in sys.argv[1:] or ["pixels", *MODELS, *TOWERS]:
        if wanted == "pixels":
            write_pixels()
        elif wanted in TOWERS:
            write_tower(wanted)
        else:
            write_model(wanted)
