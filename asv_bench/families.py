"""Time the base shapes of several families in turns, as fractions of the arithmetic peak that BERT-base reaches too.

    python asv_bench/families.py [--turns 7] [--threads 2] [--cases 8x128 1x512] [--precisions float32 bfloat16 int8]

Weights are random. Each turn runs every model once and measures the products alone between the models, so that other
load on the machine affects them all. Printed are, for each model, the median of its fractions of the peak of the
moment, the ratio of this to BERT-base's, and in brackets the ratio of the best speeds.
"""

from __future__ import annotations

import argparse
import time
from statistics import median

import numpy as np

from engine import Engine, Model, Transformer
from engine.backends.peak import forward_flops, measure_rate
from engine.families import get_family
from engine.model.config import ModelConfig
from engine.weights.parameters import expected_shapes

BASE = {"vocab_size": 2000, "hidden_size": 768, "num_attention_heads": 12, "num_hidden_layers": 12,
        "intermediate_size": 3072, "max_position_embeddings": 512}  # fmt: skip
CONFIGS = {
    "BERT": BASE | {"model_type": "bert"},
    "MPNet": BASE | {"model_type": "mpnet", "max_position_embeddings": 514},
    "ModernBERT": BASE | {"model_type": "modernbert", "num_hidden_layers": 22, "intermediate_size": 1152,
                          "max_position_embeddings": 8192},
    "Nomic": {"model_type": "nomic_bert", "vocab_size": 2000, "n_embd": 768, "n_head": 12, "n_layer": 12,
              "n_inner": 3072, "n_positions": 2048, "activation_function": "swiglu", "qkv_proj_bias": False,
              "mlp_fc1_bias": False, "mlp_fc2_bias": False, "rotary_emb_fraction": 1.0, "type_vocab_size": 2},
    "GTE": BASE | {"model_type": "new", "max_position_embeddings": 8192, "position_embedding_type": "rope",
                   "type_vocab_size": 0, "pack_qkv": True, "layer_norm_type": "layer_norm"},
}  # fmt: skip
"""The keys of config.json that state the sizes of the base models."""


def random_model(config: ModelConfig) -> Transformer:
    """Return a model with random weights of a realistic size."""
    rng = np.random.default_rng(0)
    weights = {name: rng.standard_normal(shape, np.float32) * np.float32(0.03) for name, shape in
               expected_shapes(config).items()}
    shifted = {name: array + np.float32(name.endswith("norm.weight")) for name, array in weights.items()}
    return Transformer(config, shifted)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--cases", nargs="+", default=["8x128", "1x512"])
    parser.add_argument("--precisions", nargs="+", default=["float32", "bfloat16", "int8"])
    given = parser.parse_args()
    models = {name: random_model(get_family(values).read_encoder(values).config) for name, values in CONFIGS.items()}
    for precision in given.precisions:
        engines = {name: Engine(Model(encoder=model), precision=precision, threads=given.threads)
                   for name, model in models.items()}
        for case in given.cases:
            B, T = map(int, case.split("x"))
            ids = np.random.default_rng(0).integers(1, 2000, (B, T))
            flops = {name: forward_flops(engine.config, [T] * B) / 1e9 for name, engine in engines.items()}
            speeds: dict[str, list[float]] = {name: [] for name in engines}
            shares: dict[str, list[float]] = {name: [] for name in engines}
            for turn in range(given.turns + 1):
                for name, engine in engines.items():
                    rate = measure_rate(given.threads, precision, repeats=1)
                    begun = time.perf_counter()
                    engine.forward(ids)
                    speed = flops[name] / (time.perf_counter() - begun)
                    rate = max(rate, measure_rate(given.threads, precision, repeats=1))
                    if turn:  # the first turn warms up
                        speeds[name].append(speed)
                        shares[name].append(speed / rate)
            for name in engines:
                share = median(shares[name])
                best = max(speeds[name]) / max(speeds["BERT"])
                print(f"{precision:<9}{case:<7}{name:<11} {share:5.2f} of the peak   ratio to BERT "
                      f"{share / median(shares['BERT']):.2f} ({best:.2f})", flush=True)


if __name__ == "__main__":
    main()
