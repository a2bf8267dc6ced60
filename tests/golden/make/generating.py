"""Make the golden files of generating models: folders of small random models of transformers, and what they give.

    python -m tests.golden.make.generating [NAME ...]

The script makes the models of the folders in tests/golden/decoders from their config.json and generation_config.json,
or only the ones named, and writes model.safetensors and expected.npz. The latter holds, for sequence i of `LENGTHS`,
ids_{i} [T] of the decoder, logits_{i} [T,V] in float64 arithmetic, and for a model with an encoder source_{i} [S], or
the features [mel bins, frames] of a model that reads sound; and for greedy search the new tokens greedy_{i}, after the
first `PROMPT` ids of a model without an encoder. For the sequences `WEIGHED` of a model with an encoder, cross_{i}
[L,H,T,S] holds the weights of the decoder's cross-attention.
"""

import json
import sys

import numpy as np
import torch
import transformers as hf

from tests.tools.paths import DECODERS

from .scaffold import float64_throughout

LENGTHS = ((1, 1), (2, 5), (17, 3), (40, 23))
"""The tokens of a sequence, and those of its source."""
VOCAB = 61
PROMPT = 3
NEW_TOKENS = 12
EOS = 2
WEIGHED = (0, 1, 2)
"""The sequences of which the weights of cross-attention are kept: the short ones, so that the files stay small."""

MODELS = tuple(sorted(path.parent.name for path in DECODERS.glob("*/generation_config.json")
                      if not path.with_name("expected.json").exists()))
"""The folders in tests/golden/decoders, beside those of rerankers."""


def randomize(model) -> None:
    """Give every parameter numbers that matter, in steps of 1/64 to keep files small; those of norms lie around 1."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            weight_of_norm = "norm" in name and name.endswith("weight")
            parameter.normal_(1.0 if weight_of_norm else 0.0, 0.25).mul_(64).round_().div_(64)
        for name, buffer in model.named_buffers():
            if name.endswith("final_logits_bias"):
                buffer.normal_(0.0, 0.5)


def inputs_of(model, rng: np.random.Generator, S: int) -> np.ndarray | None:
    """Return ids of a source, random features of a sound, or None for a model without an encoder."""
    config = model.config
    if not config.is_encoder_decoder:
        return None
    if config.model_type == "whisper":
        return rng.standard_normal((config.num_mel_bins, 2 * config.max_source_positions)).astype(np.float32)
    return np.append(rng.integers(3, VOCAB - 1, S), EOS)


def greedy(model, source: dict[str, torch.Tensor], prompt: list[int]) -> np.ndarray:
    """Return the new tokens of greedy search, one forward pass for each, without transformers' own search."""
    settings = model.generation_config
    tokens, first = list(prompt), len(prompt)
    while len(tokens) == first or (len(tokens) < first + NEW_TOKENS and tokens[-1] != EOS):
        name = "decoder_input_ids" if source else "input_ids"
        scores = model(**source, **{name: torch.tensor([tokens])}, use_cache=False).logits[0, -1]
        if len(tokens) == first and settings.begin_suppress_tokens:
            scores[settings.begin_suppress_tokens] = -torch.inf
        forced = settings.forced_bos_token_id if len(tokens) == 1 else None
        tokens.append(int(scores.argmax()) if forced is None else forced)
    return np.array(tokens[first:], np.uint8)


def cross_weights(model, given: dict[str, torch.Tensor], ids: np.ndarray) -> np.ndarray:
    """Return the weights of cross-attention [L,H,T,S] of a model."""
    implementation = model.config._attn_implementation
    model.set_attn_implementation("eager")
    found = model(**given, decoder_input_ids=torch.from_numpy(ids)[None], use_cache=False, output_attentions=True)
    model.set_attn_implementation(implementation)
    return torch.cat(found.cross_attentions).numpy()


def main(names: list[str]) -> None:
    """Write the folders named, or all."""
    for name in names or MODELS:
        folder = DECODERS / name
        kept, config = (folder / "config.json").read_bytes(), hf.AutoConfig.from_pretrained(folder)
        settings = hf.GenerationConfig.from_pretrained(folder)
        torch.manual_seed(0)
        rng = np.random.default_rng(0)
        model = getattr(hf, config.architectures[0])(config)
        for key in ("forced_bos_token_id", "begin_suppress_tokens"):
            setattr(model.generation_config, key, getattr(settings, key))
        with torch.no_grad():
            randomize(model)
            for module in model.modules():
                if hasattr(module, "create_weight"):  # Marian's sinusoids, which are no parameters in spirit
                    module.weight.copy_(module.create_weight())
            if name == "t5_own":
                # transformers 5 ties the logits in any case; files of version 4 have a matrix of its own for them.
                own = torch.randn(VOCAB, 12).mul(16).round().div(64)
                model.lm_head.weight = torch.nn.Parameter(own)
        model.save_pretrained(folder)
        (folder / "config.json").write_bytes(kept)
        model, arrays = model.double().eval(), {}
        for i, (T, S) in enumerate(LENGTHS):
            ids, source = rng.integers(3, VOCAB - 1, T), inputs_of(model, rng, S)  # no padding, which moves positions
            given, start = {}, [int(number) for number in ids[:PROMPT]]
            if source is not None:
                arrays[f"source_{i}"] = source if source.dtype == np.float32 else source.astype(np.uint8)
                start = [model.config.decoder_start_token_id]
                given = {"input_features" if source.ndim == 2 else "input_ids":
                         torch.from_numpy(source.astype(float) if source.ndim == 2 else source)[None]}  # fmt: skip
            with torch.inference_mode(), float64_throughout(type(model), angles=False):
                key = "input_ids" if source is None else "decoder_input_ids"
                logits = model(**given, **{key: torch.from_numpy(ids)[None]}, use_cache=False).logits[0].numpy()
                arrays[f"greedy_{i}"] = greedy(model, given, start)
                if source is not None and i in WEIGHED:
                    arrays[f"cross_{i}"] = cross_weights(model, given, ids).astype(np.float32)
            arrays |= {f"ids_{i}": ids.astype(np.uint8), f"logits_{i}": logits.astype(np.float32)}
        np.savez_compressed(folder / "expected.npz", **arrays)
        print(name, json.dumps([arrays[f"greedy_{i}"].tolist() for i in range(len(LENGTHS))]))


if __name__ == "__main__":
    main(sys.argv[1:])
