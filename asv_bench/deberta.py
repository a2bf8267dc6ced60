"""Time DeBERTa-v3's base shape in turns: the engine, and transformers on PyTorch, eager and compiled.

    OMP_NUM_THREADS=2 OMP_WAIT_POLICY=passive python asv_bench/deberta.py [--turns 7] [--threads 2] [--layers 12]
        [--cases 8x128 1x512] [--precisions float32 bfloat16 int8] [--no-compile] [--cpu-time]

It needs torch and transformers (peers/requirements.txt). Weights are random. Each turn times every library once, in
another order than the turn before, so that other load on the machine affects them all. Printed are the median and the
least of all turns, and the cosine to PyTorch's vectors in float32. On a machine that is shared, --cpu-time with
--threads 1 and OMP_NUM_THREADS=1 counts the time on the CPU, which other load changes less.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from statistics import median

import numpy as np
import torch
from transformers import DebertaV2Config, DebertaV2Model

from engine import Engine

BASE = {"vocab_size": 2000, "hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072,
        "relative_attention": True, "position_buckets": 256, "norm_rel_ebd": "layer_norm", "share_att_key": True,
        "pos_att_type": ["p2c", "c2p"], "position_biased_input": False, "attention_probs_dropout_prob": 0.0,
        "hidden_dropout_prob": 0.0}  # fmt: skip


def torch_model(model: DebertaV2Model, compiled: bool) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function from ids [B,T] to token vectors."""
    call = torch.compile(model) if compiled else model

    def run(ids: np.ndarray) -> np.ndarray:
        with torch.inference_mode():
            return call(torch.from_numpy(ids)).last_hidden_state.float().numpy()

    return run


def libraries(folder: str, arguments: argparse.Namespace) -> dict[str, Callable[[np.ndarray], np.ndarray]]:
    """Return every library that is to be timed, by its name; the first is the one that the others are compared with."""
    found: dict[str, Callable[[np.ndarray], np.ndarray]] = {}
    for precision, dtype in (("float32", torch.float32), ("bfloat16", torch.bfloat16)):
        if precision == "float32" or precision in arguments.precisions:
            model = DebertaV2Model.from_pretrained(folder, dtype=dtype).eval()
            found[f"PyTorch {precision}"] = torch_model(model, compiled=False)
            if arguments.compile:
                found[f"PyTorch {precision}, compiled"] = torch_model(model, compiled=True)
    for precision in arguments.precisions:
        engine = Engine.load(folder, precision=precision, threads=arguments.threads)
        found[f"engine {precision}"] = engine.forward
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--cases", nargs="+", default=["8x128", "1x512"])
    parser.add_argument("--precisions", nargs="+", default=["float32", "bfloat16", "int8"])
    parser.add_argument("--cpu-time", dest="clock", action="store_const", const=time.process_time,
                        default=time.perf_counter)  # fmt: skip
    parser.add_argument("--no-compile", dest="compile", action="store_false")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        DebertaV2Model(DebertaV2Config(**BASE, num_hidden_layers=arguments.layers)).save_pretrained(folder)
        found = libraries(folder, arguments)
        for case in arguments.cases:
            B, T = map(int, case.split("x"))
            ids = np.random.default_rng(0).integers(1, BASE["vocab_size"], (B, T))
            answers = {name: run(ids).reshape(-1, BASE["hidden_size"]) for name, run in found.items()}
            times: dict[str, list[float]] = {name: [] for name in found}
            order = list(found)
            for _ in range(arguments.turns):
                for name in order:
                    start = arguments.clock()
                    found[name](ids)
                    times[name].append(arguments.clock() - start)
                order = order[1:] + order[:1]
            first = next(iter(answers.values()))
            for name, answer in answers.items():
                cosine = (answer * first).sum(1) / np.linalg.norm(answer, axis=1) / np.linalg.norm(first, axis=1)
                print(f"{case:<7}{name:<30}{1e3 * median(times[name]):9.1f} ms median{1e3 * min(times[name]):9.1f} ms "
                      f"least   cosine {cosine.mean():.5f}", flush=True)


if __name__ == "__main__":
    main()
