"""Digests of forward passes: the exact bits that instruction sets give, so that tests find any change.

Sets whose products add by fused multiply-adds have the same bits, and one record, `fma`. In int8 those with attention
in float32 have two: `bounded` where weights are within the bound, `vnni` where they have all 8 bits. `amxemulated`
has the record of `amx`, because it is compiled with fused multiply-adds. Others have one each. With portable bits,
every set has the records `fma`, and `bounded` in int8.

Weights and inputs come from an integer hash, so they do not depend on NumPy's random numbers. Run this file as a module
to write `golden/digests.json` anew, after a change that alters bits on purpose, with the sentence of CHANGELOG.md that
tells users of it:

    python -m tests.tools.digests --changelog "Bits of int8 change once: ..."

`golden/digests_log.json` keeps the sentences of all changes, and which records each of them explains. A test finds a
record that no sentence explains.

A test on silicon thus compares `amx` with its emulation.
"""

import argparse
import hashlib
import itertools
import json
from functools import cache
from importlib import import_module

import numpy as np

from engine.backends.batch import Batch
from engine.backends.cpu.native.native import Kernels
from engine.backends.cpu.plan import CpuPlan
from engine.backends.cython_cpu import isa
from engine.model.attention import AttentionKind, RelativePositions
from engine.model.bits import BITS, FASTEST, PORTABLE
from engine.model.config import ModelConfig
from engine.model.precision import WAYS
from engine.model.run_config import RunConfig
from engine.weights.parameters import expected_shapes, parameters_of
from engine.weights.quantize import quantize_bounded, quantize_rows

from .paths import GOLDEN, ROOT

FILE = GOLDEN / "digests.json"
LOG = GOLDEN / "digests_log.json"
CHANGELOG = ROOT / "CHANGELOG.md"

PRECISIONS = ("float32", "bfloat16", "int8", "bfloat16x3")
"""Kernels may lack the last one."""

THREADS = (1, 2, 3, 4)

MODELS = {
    "awkward": ModelConfig("test", hidden_size=44, num_layers=3, num_heads=4, head_width=11, ffn_size=100,
                           vocab_size=120, max_positions=300, token_types=2),
    "one of everything": ModelConfig("test", 1, 1, 1, 1, 1, vocab_size=5, max_positions=300, token_types=1),
    "heads wider than the model": ModelConfig("test", 20, 2, 3, 17, 33, vocab_size=50, max_positions=300),
    "a head of 256": ModelConfig("test", 72, 1, 2, 256, 65, vocab_size=50, max_positions=300),
    "no tables but the words": ModelConfig("test", 24, 2, 2, 12, 48, vocab_size=50, embedding_norm=False),
    "tanh": ModelConfig("test", 64, 2, 2, 32, 128, vocab_size=50, max_positions=300, activation="gelu_tanh"),
    "relu": ModelConfig("test", 64, 2, 2, 32, 128, vocab_size=50, max_positions=300, activation="relu"),
    "deep": ModelConfig("test", 16, 2, 1, 16, 2100, vocab_size=50, max_positions=300),
    "ModernBERT": ModelConfig("test", 42, 3, 3, 14, 30, vocab_size=50, max_positions=300, position_table=False,
                              norm_place="pre", norm_bias=False, first_attention_norm=False, biases=(), gated=True,
                              attention_kinds=(AttentionKind(None, 160000.0), AttentionKind(20, 10000.0)),
                              layer_kinds=(0, 1, 1)),
    "grouped key heads, RMSNorm, SiLU": ModelConfig("test", 40, 2, 6, 9, 70, vocab_size=50, max_positions=300,
                                                    norm="rms", num_kv_heads=2, gated=True, activation="silu",
                                                    biases=("query", "down")),
    "buckets of distances in each layer, RMSNorm": ModelConfig(
        "test", 36, 2, 3, 13, 37, vocab_size=50, max_positions=300, position_table=False, norm="rms", norm_place="pre",
        embedding_norm=False, biases=(), gated=True, activation="gelu_tanh", attention_scale=1.0,
        attention_bias="buckets", bias_buckets=32, bias_max_distance=128, bias_in_layers=True),
    "ALiBi": ModelConfig("test", 40, 2, 5, 8, 31, vocab_size=50, max_positions=300, position_table=False,
                         token_types=2, gated=True, attention_bias="alibi"),
    "relative positions of both kinds": ModelConfig(
        "test", 42, 2, 3, 14, 46, vocab_size=50, max_positions=300, position_table=False,
        relative=RelativePositions(limit=300, buckets=32)),
    "relative positions of their own maps": ModelConfig(
        "test", 28, 2, 4, 7, 37, vocab_size=50, max_positions=300,
        relative=RelativePositions(limit=20, terms=("c2p",), norm=False, own_maps=True)),
    "sandwich norms, norms of heads": ModelConfig(
        "test", 42, 3, 3, 16, 29, vocab_size=50, max_positions=300, position_table=False, norm="rms",
        norm_place="sandwich", embedding_norm=False, embedding_scale=42**0.5, num_kv_heads=1, biases=(), gated=True,
        activation="gelu_tanh", head_norm=True, attention_scale=20**-0.5, layer_kinds=(0, 1, 1),
        attention_kinds=(AttentionKind(15, 10000.0), AttentionKind(None, 1000000.0, rotary_scale=8.0))),
    "shared layers, a map of the embeddings, causal": ModelConfig(
        "test", 42, 3, 3, 14, 61, vocab_size=50, max_positions=300, embedding_width=20, weight_sets=(0, 0, 1),
        attention_kinds=(AttentionKind(causal=True),)),
}

BATCHES = ((1,), (16,), (64,), (65,), (200,), (3, 0, 5, 64, 1, 1, 130), (70,) * 4, (97, 96, 95, 94, 93))
"""The lengths of sequences. Groups of up to 64 tokens run by columns, larger ones by rows, or as bundles if these keep
all threads busy."""


def hashed(seed, *shape):
    """Return floats in [-1, 1), the same on every machine: the upper 24 bits of splitmix64 of each index."""
    x = np.arange(np.prod(shape), dtype=np.uint64) + np.uint64(seed << 32)
    with np.errstate(over="ignore"):
        x = (x + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ x >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ x >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
        x ^= x >> np.uint64(31)
    return ((x >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-23) - np.float32(1)).reshape(shape)


@cache
def weights_of(config):
    """Return all parameters of a model; the weights of norms lie around 1."""
    return {name: hashed(seed, *shape) * np.float32(0.5) + np.float32(name.endswith("norm.weight"))
            for seed, (name, shape) in enumerate(expected_shapes(config).items(), 1)}


@cache
def batch_of(config, lengths):
    """Return a batch of sequences of these lengths, with hashed token ids and token types."""
    N = sum(lengths)
    numbers = (hashed(1000 + N, 2, N) + 1) / 2
    return Batch(
        cu_seqlens=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32),
        input_ids=(numbers[0] * config.vocab_size).astype(np.int32),
        inputs_embeds=None,
        position_ids=np.concatenate([[], *map(np.arange, lengths)]).astype(np.int32),
        token_type_ids=(numbers[1] * max(1, config.token_types)).astype(np.int32),
    )


def rounded(product, config, weights):
    """Return the weights with int8 linear maps, rounded to nearest, or within the bound if the product needs it.

    So the digests do not depend on how the engine chooses between the two integers next to a weight.
    """
    found = dict(weights)
    for name, parameter in parameters_of(config).items():
        if parameter.kind == "linear":
            found[name], found[f"{name}_scale"] = (quantize_bounded(weights[name], parameter.heads)
                                                   if product.needs_bound else quantize_rows(weights[name]))
    return found


def digest(kernels, model, precision, threads, bits=FASTEST):
    """Return the first 16 hexadecimal digits of SHA-256 over the outputs of all batches."""
    config = MODELS[model]
    weights = weights_of(config)
    if precision == "int8":
        weights = rounded(kernels.product(precision, portable=bits == PORTABLE), config, weights)
    plan = CpuPlan(kernels, config, weights, RunConfig(threads, precision, 2048, bits=bits))
    sha = hashlib.sha256()
    for lengths in BATCHES:
        sha.update(plan.forward(batch_of(config, lengths)).astype("<f4").tobytes())
    return sha.hexdigest()[:16]


def record_of(name, product):
    """Return the name of the record that has the bits of this product of an instruction set."""
    if product.instruction.startswith("vfmadd231ps") or (product.portable and product.name != "int8"):
        group = "fma"
    elif product.name == "int8" and product.attends_in_float32 and product.kernels.fused:
        group = "bounded" if product.needs_bound else "vnni"
    else:
        group = "amx" if name == "amxemulated" else name
    return f"{group}/{product.name}"


def checksum(digests):
    """Return a short checksum of the digests of one record, by model."""
    return hashlib.sha256(json.dumps(digests, sort_keys=True).encode()).hexdigest()[:16]


def plain(text):
    """Return a text with single spaces in place of line breaks and indents."""
    return " ".join(text.split())


def problems(recorded, log, changelog):
    """Return what is wrong with the log of changes: records that no sentence of the CHANGELOG explains.

    log: a list of {"sentence": ..., "records": {name of a record: its checksum}}, the newest change last.
    """
    found = [f"the sentence {entry['sentence']!r} is not in CHANGELOG.md" for entry in log
             if plain(entry["sentence"]) not in plain(changelog)]
    sentences = [plain(entry["sentence"]) for entry in log]
    found += [f"two changes have the sentence {one!r}" for one in sorted(set(sentences)) if sentences.count(one) > 1]
    explained = {name: value for entry in log for name, value in entry["records"].items()}
    found += [f"no sentence explains the bits of {name}" for name, digests in recorded.items()
              if explained.get(name) != checksum(digests)]
    return found + [f"the log has {name}, which is not on record" for name in explained if name not in recorded]


def logged(old, new, log, sentence):
    """Return the log with an entry for the records that differ; raises `SystemExit` without a new sentence for them."""
    changed = {name: checksum(digests) for name, digests in new.items() if old.get(name) != digests}
    if not changed:
        return log
    if not sentence or not plain(sentence) or plain(sentence) in [plain(entry["sentence"]) for entry in log]:
        raise SystemExit(f"the bits of {', '.join(changed)} change; write a sentence about it into CHANGELOG.md, and "
                         "give it with --changelog; a sentence explains one change")
    return [*log, {"sentence": plain(sentence), "records": changed}]


def write(path, value):
    path.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")


def main():
    """Record the digests of these kernels, which have to run here, or of all that the engine would run here."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("names", nargs="*", help="instruction sets")
    parser.add_argument("--changelog", help="the sentence of CHANGELOG.md that tells users of the change")
    arguments = parser.parse_args()
    old, log = json.loads(FILE.read_text()), json.loads(LOG.read_text())
    recorded = dict(old)
    for name in arguments.names or isa.available():
        if reason := isa.why_not(name):     # this also asks for the permission to use tiles
            raise SystemExit(f"{name}: {reason}")
        kernels = Kernels(import_module(f"{isa.__package__}.kernels_{name}").table)
        for bits, precision in itertools.product(BITS, PRECISIONS):
            product = kernels.product(precision, portable=bits == PORTABLE)
            if product.exists and not (bits == PORTABLE and (precision in WAYS or not kernels.fused)):
                recorded[record_of(name, product)] = {model: digest(kernels, model, precision, 1, bits)
                                                      for model in MODELS}
    recorded = dict(sorted(recorded.items()))
    log = logged(old, recorded, log, arguments.changelog)
    if wrong := problems(recorded, log, CHANGELOG.read_text(encoding="utf-8")):
        raise SystemExit("\n".join(wrong))
    write(FILE, recorded)
    write(LOG, log)


if __name__ == "__main__":
    main()
