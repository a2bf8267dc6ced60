"""Make the golden files of wav2vec 2.0 and HuBERT: vectors in float64, and what the pipeline of transformers writes.

    python -m tests.golden.make.ctc [NAME ...]

The script writes the folders that `MODELS` lists, or only those named, in tests/golden/encoders. Each has the files of
a folder on the hub, of which those in JSON are written by hand, and

    inputs.npz        for input i, given_{i} [n] (samples as the feature extractor scales them) and hidden_{i} [T, D]
    transcripts.json  for each length of `LENGTHS`, of `recording` in tests/tools/speech.py: the text, and the frames in
                      which each of its words begins and ends

The pipeline computes in float64, with chunk_length_s=30. The script stops unless each mistake of `mistakes` changes the
vectors by at least 1e-3, and unless the two largest scores of each frame differ by more than `LEAST_MARGIN`.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoFeatureExtractor, AutoTokenizer, pipeline

from tests.tools.speech import recording

from .scaffold import Golden, open_model, save_model, write_models

LENGTHS = (0.1, 0.4, 1, 2.5, 4, 7, 10.01, 29.98, 30, 30.02, 31, 35, 49.99, 50.3, 95)
"""Seconds of the recordings; those above 30 s are read in several windows."""
FEW = (0.1, 3, 30, 44)
LEAST_MARGIN = 1e-5


@dataclass(frozen=True)
class Heard(Golden):
    """One golden model."""

    lengths: tuple[float, ...] = FEW
    seed: int = 0
    """Of the first recording."""
    space: int = 4
    """The token between two words."""
    old_names: bool = False
    """Whether the positional convolution has the names of the weight norm of torch before 2.1."""


MODELS = (
    Heard("wav2vec2_base", seed=200, lengths=LENGTHS, old_names=True, spread={"conv_layers": 0.5}),
    Heard("wav2vec2_large", space=0),
    Heard("hubert_ctc", spread={"conv_layers": 0.5}),
)
OLD = {"parametrizations.weight.original0": "weight_g", "parametrizations.weight.original1": "weight_v"}


def make(golden: Heard) -> None:
    """Write the golden files beside a model, from the weights as they are stored."""
    file = golden.folder / "model.safetensors"
    named = load_file(file)
    for new, old in OLD.items() if golden.old_names else ():
        named = {name.replace(new, old): tensor for name, tensor in named.items()}
    save_file(named, file, {"format": "pt"})
    whole = open_model(golden.folder, golden.type)
    extractor = AutoFeatureExtractor.from_pretrained(golden.folder)
    arrays = {}
    for i, seconds in enumerate((0.7, 0.025, 1.9)):
        [given] = extractor(recording(seconds, i), sampling_rate=16000)["input_values"]
        arrays |= {f"given_{i}": given, f"hidden_{i}": run(whole, given).astype(np.float32)}
    np.savez_compressed(golden.folder / "inputs.npz", **arrays)
    for name, wrong in mistakes(whole, given):
        change = np.abs(wrong - arrays["hidden_2"]).max()
        print(f"{golden.name}, {name}: changes the result by {change:.4f}")
        if not change >= 1e-3:
            raise SystemExit("this mistake would not show")
    tokenizer = AutoTokenizer.from_pretrained(golden.folder)
    write = pipeline("automatic-speech-recognition", model=whole, tokenizer=tokenizer, feature_extractor=extractor,
                     chunk_length_s=30, return_timestamps="word")
    margins: list[float] = []
    whole.lm_head.register_forward_hook(lambda module, given, scores: margins.append(margin(scores[0])))
    transcripts = []
    for i, seconds in enumerate(golden.lengths):
        found = write(recording(seconds, golden.seed + i))
        times = np.array([word["timestamp"] for word in found["chunks"]]).reshape(-1, 2) * 50
        words = [word["text"] for word in found["chunks"]]
        assert [*map(str.lower, words)] == found["text"].lower().split(), "words are not those of the text"
        starts, ends = times.round().astype(int).T.tolist()
        transcripts.append({"seconds": seconds, "seed": golden.seed + i, "text": found["text"], "starts": starts,
                            "ends": ends})
    (golden.folder / "transcripts.json").write_text(json.dumps(transcripts, ensure_ascii=False) + "\n")
    print(f"{golden.name}: {sum(len(one['starts']) for one in transcripts)} words, the least margin is {min(margins)}")
    if not min(margins) > LEAST_MARGIN:
        raise SystemExit("the scores of a frame are too close")


def margin(scores: torch.Tensor) -> float:
    """Return the least difference of the two largest scores of a row."""
    best = scores.topk(2, dim=-1).values
    return float((best[:, 0] - best[:, 1]).min())


def run(whole: Any, given: np.ndarray) -> np.ndarray:
    """Return the vectors [T, D] of samples."""
    with torch.inference_mode():
        hidden = whole.base_model(torch.from_numpy(given).double()[None]).last_hidden_state
    if hidden.dtype != torch.float64:
        raise SystemExit(f"transformers computed in {hidden.dtype}")
    return hidden[0].numpy()


def mistakes(whole: Any, given: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """Yield (name, vectors) of each mistake that an implementation could make."""
    yield "a sample later", run(whole, np.roll(given, 1))
    parameters = dict(whole.named_parameters())
    for part in ("conv_layers.0.layer_norm.bias", "conv_layers.0.conv.bias", "conv_layers.6.layer_norm.weight",
                 "feature_projection.layer_norm.bias", "projection.bias", "pos_conv_embed.conv.bias", "original0",
                 "encoder.layer_norm.bias", "feed_forward.output_dense.bias"):
        for name, parameter in parameters.items():
            if part in name:
                kept = parameter.detach().clone()
                parameter.data = torch.ones_like(kept) if name.endswith("weight.original0") else torch.zeros_like(kept)
                yield f"no {name}", run(whole, given)
                parameter.data = kept


def save(golden: Heard) -> None:
    """Write random weights with which all letters, blanks and spaces are written about as often."""
    model = golden.type(golden.config).eval()
    torch.manual_seed(0)
    save_model(golden, model)
    with torch.inference_mode():
        scores = model.float()(torch.from_numpy(recording(8))[None]).logits[0]
    with torch.no_grad():
        model.lm_head.weight /= scores.std(dim=0)[:, None]
        model.lm_head.bias -= scores.mean(dim=0)
        model.lm_head.bias /= scores.std(dim=0)
        model.lm_head.bias[[golden.config.pad_token_id, golden.space]] += 0.7
    model.to(golden.stored).save_pretrained(golden.folder)


if __name__ == "__main__":
    write_models(MODELS, make, save)
