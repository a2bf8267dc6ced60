"""Time generation with the shape of Marian's base model in turns: the engine, and CTranslate2 on the same model.bin.

    python asv_bench/translation.py [--turns 5] [--threads 2] [--batches 1 8 32] [--beams 1 4]
        [--precisions float32 int8] [--source 24] [--tokens 32] [--layers 6]

It needs ctranslate2 (pip install ctranslate2==4.8.5). Weights are random, so every result is forced to have `--tokens`
tokens, by a least and a greatest length. Each turn times both libraries once, the first one second in the next turn, so
that other load on the machine affects both. Printed are tokens of the results per second: the median of all turns, and
the best turn; and in float32 the share of results that are equal.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import ctranslate2
import numpy as np
from ctranslate2.specs import TransformerSpec
from ctranslate2.specs.common_spec import Activation

from engine import Generator

D, F, V, HEADS, POSITIONS = 512, 2048, 58101, 8, 512
UNKNOWN, START, END = 0, 1, 2

Library = Callable[[list[list[int]], int, int], list[list[int]]]
"""(sources, beams, tokens) -> the ids of each result."""


def write_model(folder: Path, layers: int) -> None:
    """Write a Transformer of Marian's shape with random weights, as CTranslate2's converter writes one."""
    spec = TransformerSpec.from_config((layers, layers), num_heads=HEADS, pre_norm=False, activation=Activation.SWISH)
    rng = np.random.default_rng(0)

    def matrix(*shape: int) -> np.ndarray:
        return rng.normal(0, shape[-1] ** -0.5, shape).astype(np.float32)

    def norm(spec: object) -> None:
        spec.gamma, spec.beta = np.ones(D, np.float32), np.zeros(D, np.float32)  # type: ignore[attr-defined]

    words, positions = matrix(V, D), matrix(POSITIONS, D)
    for side in (spec.encoder, spec.decoder):
        embeddings = side.embeddings[0] if isinstance(side.embeddings, list) else side.embeddings
        embeddings.weight, side.position_encodings.encodings, side.scale_embeddings = words, positions, True
        for layer in side.layer:
            attentions = [(layer.self_attention, (3 * D, D))]
            if hasattr(layer, "attention"):
                attentions.append((layer.attention, (D, 2 * D, D)))
            for attention, rows in attentions:
                for linear, count in zip(attention.linear, rows, strict=True):
                    linear.weight, linear.bias = matrix(count, D), np.zeros(count, np.float32)
                norm(attention.layer_norm)
            for linear, shape in ((layer.ffn.linear_0, (F, D)), (layer.ffn.linear_1, (D, F))):
                linear.weight, linear.bias = matrix(*shape), np.zeros(shape[0], np.float32)
            norm(layer.ffn.layer_norm)
    spec.decoder.projection.weight, spec.decoder.projection.bias = words, np.zeros(V, np.float32)
    names = ["<unk>", "<s>", "</s>", *(f"w{i}" for i in range(3, V))]
    spec.register_source_vocabulary(names)
    spec.register_target_vocabulary(names)
    spec.config.decoder_start_token = "<s>"
    spec.validate()
    spec.optimize(quantization="float32")
    spec.save(str(folder))


def ctranslate2_library(folder: Path, precision: str, threads: int) -> Library:
    """Return CTranslate2's translation of ids."""
    translator = ctranslate2.Translator(str(folder), intra_threads=threads, compute_type=precision)
    names = json.loads((folder / "shared_vocabulary.json").read_text(encoding="utf-8"))
    ids = {name: i for i, name in enumerate(names)}

    def run(sources: list[list[int]], beams: int, tokens: int) -> list[list[int]]:
        found = translator.translate_batch([[names[i] for i in source] for source in sources], beam_size=beams,
                                           min_decoding_length=tokens, max_decoding_length=tokens,
                                           max_batch_size=len(sources))  # fmt: skip
        return [[ids[name] for name in one.hypotheses[0]] for one in found]

    return run


def engine_library(folder: Path, precision: str, threads: int) -> Library:
    """Return the engine's generation from ids."""
    generator = Generator.load(folder, precision=precision, threads=threads, max_rows=256)

    def run(sources: list[list[int]], beams: int, tokens: int) -> list[list[int]]:
        results = generator.generate(sources, num_beams=beams, min_new_tokens=tokens, max_new_tokens=tokens)
        return [list(result.ids) for result in results]

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, number in (("turns", 5), ("threads", 2), ("source", 24), ("tokens", 32), ("layers", 6)):
        parser.add_argument(f"--{name}", type=int, default=number)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--beams", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--precisions", nargs="+", default=["float32", "int8"])
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_model(folder, given.layers)
        for precision in given.precisions:
            found = {make.__name__.removesuffix("_library"): make(folder, precision, given.threads)
                     for make in (engine_library, ctranslate2_library)}
            for batch in given.batches:
                for beams in given.beams:
                    compare(found, precision, batch, beams, given)


def compare(found: dict[str, Library], precision: str, batch: int, beams: int, given: argparse.Namespace) -> None:
    """Time one cell of the table, and print it."""
    rng = np.random.default_rng(batch)
    sources = [[*rng.integers(3, V, given.source - 1).tolist(), END] for _ in range(batch)]
    answers = {name: run(sources, beams, given.tokens) for name, run in found.items()}
    seconds: dict[str, list[float]] = {name: [] for name in found}
    order = list(found)
    for _ in range(given.turns):
        for name in order:
            begun = time.perf_counter()
            found[name](sources, beams, given.tokens)
            seconds[name].append(time.perf_counter() - begun)
        order.reverse()
    total = batch * given.tokens
    a, b = answers.values()
    equal = sum(one == other for one, other in zip(a, b, strict=True)) / batch
    cells = ", ".join(f"{name} {total / median(own):8.1f} ({total / min(own):8.1f})" for name, own in seconds.items())
    ratios = [pick(seconds["ctranslate2"]) / pick(seconds["engine"]) for pick in (median, min)]
    print(f"{precision:<9} batch {batch:<3} beams {beams}   {cells} tokens/s   "
          f"ratio {ratios[0]:.2f} ({ratios[1]:.2f})   {equal:.0%} equal", flush=True)


if __name__ == "__main__":
    main()
