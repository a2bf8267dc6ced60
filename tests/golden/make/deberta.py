"""Make the golden files of DeBERTa v2 and v3: what transformers computes in float64.

    python -m tests.golden.make.deberta [NAME ...]

The script writes the folders that `MODELS` lists, or only those named, in tests/golden. rotary_encoders.py says what
they hold.

The computation, for one sequence of T tokens; D, H, d, F as in engine/model/config.py; x @ W^T + b is written W(x):

    x = LayerNorm(word_embeddings[ids] + position_embeddings[0..T-1] + token_type_embeddings[types])
                                                                    tables that a model lacks add nothing
    R = rel_embeddings, or encoder.LayerNorm(rel_embeddings)        [2 * span, D]
    for each layer:
        q, k, v = query_proj(x), key_proj(x), value_proj(x)         as H heads of d
        K, Q = key_proj(R), query_proj(R)                           or pos_key_proj(R), pos_query_proj(R); as heads
        b(t, s) = bucket(t - s) + span, cut to 0 .. 2 * span - 1    see `bucket`
        score(t, s) = (q_t . k_s + q_t . K[b(t, s)] + k_s . Q[b(t, s)]) / sqrt(n d)
                                                                    n terms; the second is c2p, the third p2c
        x = LayerNorm(x + dense(softmax(score) v))
        x = LayerNorm(x + dense(gelu(dense(x))))

The script computes everything a second time in NumPy, and stops unless the two agree within 1e-10. It also stops unless
each mistake of `mistakes` changes the stored rows of the sequence of 129 tokens by at least 1e-2.
"""

import json
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
import transformers
from transformers import AutoConfig

from tests.tools.paths import ENCODERS

from .expected import VOCAB, Golden, make_expected, sparse
from .rotary_encoders import Tensors, float64_throughout, gelu, open_model, run, types_of

LENGTHS = (1, 2, 16, 17, 18, 66, 129, 300)


@dataclass(frozen=True)
class Plain:
    """What the NumPy computation needs beside the tensors, written out by hand rather than read by transformers."""

    heads: int
    eps: float
    limit: int
    """max_relative_positions, or max_position_embeddings where that is -1."""
    buckets: int
    """position_buckets; 0 for none."""
    terms: tuple[str, ...]
    own: bool = False
    """Whether a layer has maps of its own for the table."""
    sign: int = 1
    transposed: bool = False
    factor: int = 0
    """n, where a mistake changes it."""


SIZES = {"vocab_size": VOCAB, "num_hidden_layers": 2, "max_position_embeddings": 320, "pad_token_id": 0,
         "relative_attention": True}  # fmt: skip

V3 = {
    "model_type": "deberta-v2", "attention_probs_dropout_prob": 0.1, "hidden_act": "gelu", "hidden_dropout_prob": 0.1,
    "hidden_size": 33, "initializer_range": 0.02, "intermediate_size": 46, "max_position_embeddings": 320,
    "relative_attention": True, "position_buckets": 32, "norm_rel_ebd": "layer_norm", "share_att_key": True,
    "pos_att_type": "p2c|c2p", "layer_norm_eps": 1e-7, "max_relative_positions": -1, "position_biased_input": False,
    "num_attention_heads": 3, "num_hidden_layers": 3, "type_vocab_size": 0, "vocab_size": VOCAB,
}  # fmt: skip

MODELS = {
    "deberta_v3": Golden("DebertaV2ForSequenceClassification", V3, torch.float16,
                         Plain(3, 1e-7, 320, 32, ("c2p", "p2c")), V3),
    "deberta_p2c": Golden(
        "DebertaV2Model",
        SIZES | {"hidden_size": 30, "num_attention_heads": 2, "intermediate_size": 35, "layer_norm_eps": 0.01,
                 "type_vocab_size": 2, "max_relative_positions": 24, "pos_att_type": ["p2c"], "share_att_key": True},
        torch.bfloat16, Plain(2, 0.01, 24, 0, ("p2c",))),
    "deberta_c2p": Golden(
        "DebertaV2Model",
        SIZES | {"hidden_size": 28, "num_attention_heads": 4, "intermediate_size": 37, "position_buckets": 8,
                 "max_relative_positions": 20, "pos_att_type": ["c2p"], "norm_rel_ebd": "layer_norm",
                 "position_biased_input": False},
        torch.float32, Plain(4, 1e-7, 20, 8, ("c2p",), own=True)),
    "deberta_own": Golden(
        "DebertaV2ForMaskedLM",
        SIZES | {"hidden_size": 34, "num_attention_heads": 2, "intermediate_size": 31, "position_buckets": 12,
                 "max_relative_positions": 10, "pos_att_type": ["c2p", "p2c"], "norm_rel_ebd": "layer_norm",
                 "position_biased_input": False},
        torch.bfloat16, Plain(2, 1e-7, 10, 12, ("c2p", "p2c"), own=True)),
}  # fmt: skip


def main() -> None:
    chosen = sys.argv[1:] or list(MODELS)
    for name in chosen:
        make_model(ENCODERS / name, MODELS[name])
        save_expected(ENCODERS / name, MODELS[name])


def make_model(folder: Path, golden: Golden) -> None:
    """Write config.json and model.safetensors of a random model."""
    folder.mkdir(exist_ok=True)
    torch.manual_seed(0)
    config = AutoConfig.for_model(**({"model_type": "deberta-v2"} | golden.config))
    model = getattr(transformers, golden.kind)(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(1.0 if name.endswith("LayerNorm.weight") else 0.0, 0.2)
    model.to(golden.dtype).save_pretrained(folder)
    if golden.own_config:
        (folder / "config.json").write_text(json.dumps(golden.own_config, indent=2) + "\n", encoding="utf-8")


def save_expected(folder: Path, golden: Golden) -> None:
    """Write expected.npz beside a model, from the weights as they are stored."""
    with float64_throughout(golden.kind):
        model, tensors = open_model(folder)
        make_expected(folder, partial(run, model), LENGTHS, kinds=types_of(tensors), step=sparse,
                      second=partial(numpy_forward, tensors, golden.plain),
                      mistakes=((name, partial(numpy_forward, *wrong)) for name, *wrong in
                                mistakes(tensors, golden.plain)))  # fmt: skip


def bucket(distance: int, plain: Plain) -> int:
    """Return a distance, or the number of the bucket of a far one."""
    half = plain.buckets // 2
    if plain.buckets == 0 or abs(distance) <= half:
        return distance
    share = math.log(abs(distance) / half) / math.log((plain.limit - 1) / half)
    return int(math.copysign(math.ceil(share * (half - 1)) + half, distance))


def numpy_forward(tensors: Tensors, plain: Plain, ids: np.ndarray, types: np.ndarray | None) -> np.ndarray:
    """Compute what the docstring above says, in float64: hidden [T, D]."""
    T, H, span = len(ids), plain.heads, plain.buckets or plain.limit

    def linear(name: str, x: np.ndarray) -> np.ndarray:
        return x @ tensors[f"{name}.weight"].T + tensors[f"{name}.bias"]

    def norm(name: str, x: np.ndarray) -> np.ndarray:
        centred = x - x.mean(-1, keepdims=True)
        scaled = centred / np.sqrt((centred * centred).mean(-1, keepdims=True) + plain.eps)
        return scaled * tensors[f"{name}.weight"] + tensors[f"{name}.bias"]

    def heads(name: str, x: np.ndarray) -> np.ndarray:
        return linear(name, x).reshape(len(x), H, -1).swapaxes(0, 1)

    x = tensors["embeddings.word_embeddings.weight"][ids]
    if "embeddings.position_embeddings.weight" in tensors:
        x = x + tensors["embeddings.position_embeddings.weight"][:T]
    if "embeddings.token_type_embeddings.weight" in tensors:
        x = x + tensors["embeddings.token_type_embeddings.weight"][np.zeros(T, int) if types is None else types]
    x = norm("embeddings.LayerNorm", x)
    table = tensors["encoder.rel_embeddings.weight"]
    if "encoder.LayerNorm.weight" in tensors:
        table = norm("encoder.LayerNorm", table)
    row = {n: min(max(bucket(n, plain) + span, 0), 2 * span - 1) for n in range(-T, T + 1)}
    rows = np.array([[row[plain.sign * (t - s)] for s in range(T)] for t in range(T)])
    for i in range(max(int(name.split(".")[2]) for name in tensors if name.startswith("encoder.layer.")) + 1):
        layer = f"encoder.layer.{i}"
        q, k, v = (heads(f"{layer}.attention.self.{part}_proj", x) for part in ("query", "key", "value"))
        scores = q @ k.swapaxes(1, 2)
        own = "pos_" if plain.own else ""
        if "c2p" in plain.terms:
            of_rows = q @ heads(f"{layer}.attention.self.{own}key_proj", table).swapaxes(1, 2)
            scores = scores + np.take_along_axis(of_rows, rows[None], 2)
        if "p2c" in plain.terms:
            of_rows = k @ heads(f"{layer}.attention.self.{own}query_proj", table).swapaxes(1, 2)
            term = np.take_along_axis(of_rows, rows.T[None], 2)     # [H, s, t]
            scores = scores + (term if plain.transposed else term.swapaxes(1, 2))
        scores /= math.sqrt((plain.factor or 1 + len(plain.terms)) * q.shape[-1])
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        context = (weights @ v).swapaxes(0, 1).reshape(T, -1)
        x = norm(f"{layer}.attention.output.LayerNorm", x + linear(f"{layer}.attention.output.dense", context))
        hidden = gelu(linear(f"{layer}.intermediate.dense", x))
        x = norm(f"{layer}.output.LayerNorm", x + linear(f"{layer}.output.dense", hidden))
    return x


def mistakes(tensors: Tensors, plain: Plain) -> Iterator[tuple[str, Tensors, Plain]]:
    """Yield (name, tensors, plain) of each mistake that an implementation could make."""
    yield "the other sign of the distance", tensors, replace(plain, sign=-1)
    yield "a scale of 1 / sqrt(d)", tensors, replace(plain, factor=1)
    if "p2c" in plain.terms:
        yield "p2c transposed", tensors, replace(plain, transposed=True)
    for term in plain.terms:
        rest = tuple(other for other in plain.terms if other != term)
        yield f"no {term}", tensors, replace(plain, terms=rest, factor=1 + len(plain.terms))
    if plain.buckets:
        yield "no buckets", tensors, replace(plain, buckets=0, limit=plain.buckets)
        yield "one bucket fewer", tensors, replace(plain, limit=plain.limit + 3)
    if "encoder.LayerNorm.weight" in tensors:
        yield "no norm of the table", {name: array for name, array in tensors.items()
                                       if not name.startswith("encoder.LayerNorm")}, plain  # fmt: skip
    if plain.own:
        names = {name: name.replace("pos_", "") for name in tensors if "pos_" in name}
        yield "the maps of the tokens for the table", tensors | {name: tensors[names[name]] for name in names}, plain
    # A bias of all keys, or of all rows of K, moves all scores of a query alike.
    for part in ("key_proj.bias",) * ("p2c" in plain.terms) + ("query_proj.bias", "value_proj.bias", "dense.bias"):
        changed = {name: np.zeros_like(array) if name.endswith(part) else array for name, array in tensors.items()}
        yield f"no {part}", changed, plain


if __name__ == "__main__":
    main()
