"""Time one sequence of Gemma 3's shape of 270M parameters beside llama.cpp's server, from one GGUF file in Q8_0.

    python asv_bench/gemma_peers.py LLAMA_SERVER [--turns 10] [--threads 2] [--precisions q8_0 int8]

LLAMA_SERVER is the program llama-server. Weights are random. In every turn the server and the engine in each precision
generate 128 tokens behind 32, greedily and in turns; printed are the best and the median tokens a second.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from engine import Generator

sys.path.append(str(Path(__file__).parents[1]))  # tests/ lies beside this folder
from tests.tools.gguf_files import Blocks, gguf

D, LAYERS, HEADS, WIDTH, F, WORDS = 640, 18, 4, 256, 2048, 262_144
PROMPT = np.random.default_rng(1).integers(5, 200_000, 32).tolist()
TOKENS, PORT = 128, 8899


def q8_0(rng: np.random.Generator, rows: int, columns: int) -> Blocks:
    """Return random blocks of a matrix [rows, columns]: a float16 scale for 32 codes."""
    blocks = np.zeros(rows * columns // 32, np.dtype([("scale", "<f2"), ("codes", "i1", 32)]))
    blocks["scale"], blocks["codes"] = 1.7 / 127 / columns**0.5, rng.integers(-127, 128, (len(blocks), 32))
    return Blocks(8, (rows, columns), blocks.tobytes())


def model() -> bytes:
    """Return the file."""
    rng, ones = np.random.default_rng(0), {D: np.ones(D, np.float32), WIDTH: np.ones(WIDTH, np.float32)}
    tensors: dict[str, Any] = {"token_embd.weight": q8_0(rng, WORDS, D), "output_norm.weight": ones[D]}
    for i in range(LAYERS):
        tensors |= {f"blk.{i}.{name}.weight": ones[size] for name, size in (
            ("attn_norm", D), ("ffn_norm", D), ("post_attention_norm", D), ("post_ffw_norm", D), ("attn_q_norm", WIDTH),
            ("attn_k_norm", WIDTH))}
        tensors |= {f"blk.{i}.{name}.weight": q8_0(rng, *shape) for name, shape in (
            ("attn_q", (HEADS * WIDTH, D)), ("attn_k", (WIDTH, D)), ("attn_v", (WIDTH, D)),
            ("attn_output", (D, HEADS * WIDTH)), ("ffn_gate", (F, D)), ("ffn_up", (F, D)), ("ffn_down", (D, F)))}
    own = {"block_count": LAYERS, "context_length": 32_768, "embedding_length": D, "feed_forward_length": F,
           "attention.head_count": HEADS, "attention.head_count_kv": 1, "attention.key_length": WIDTH,
           "attention.value_length": WIDTH, "attention.layer_norm_rms_epsilon": 1e-6, "attention.sliding_window": 512,
           "rope.freq_base": 1e6, "rope.freq_base_swa": 1e4}
    words = {"model": "gpt2", "pre": "gpt-2", "tokens": [f"{chr(0x4E00 + i % 20_000)}{i}" for i in range(WORDS)],
             "merges": [], "bos_token_id": 2, "eos_token_id": 1}
    return gguf({"general.architecture": "gemma3"} | {f"gemma3.{key}": value for key, value in own.items()}
                | {f"tokenizer.ggml.{key}": value for key, value in words.items()}, tensors)


def llama_rate(tokens: int) -> float:
    """Return the tokens a second that the server states."""
    asked = {"prompt": PROMPT, "n_predict": tokens, "ignore_eos": True, "temperature": 0, "cache_prompt": False}
    request = urllib.request.Request(f"http://127.0.0.1:{PORT}/completion", json.dumps(asked).encode(),
                                     {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=300) as answer:
        return float(json.load(answer)["timings"]["predicted_per_second"])


def engine_rate(generator: Generator) -> float:
    """Return the tokens a second behind the first one."""
    times = [time.perf_counter() for _ in generator.stream(PROMPT, max_new_tokens=TOKENS, eos_token_id=None)]
    return (len(times) - 1) / (times[-1] - times[0])


def main() -> None:
    """Write the file, start the server, and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("server", type=Path)
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--precisions", nargs="+", default=["q8_0", "int8"])
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "gemma3.gguf"
        path.write_bytes(model())
        command = [given.server, "-m", path, "-t", str(given.threads), "-c", "4096", "-np", "1", "--port", str(PORT)]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
            try:
                compare(path, given)
            finally:
                server.kill()


def compare(path: Path, given: argparse.Namespace) -> None:
    """Print the rates of the server and of the engine."""
    generators = {name: Generator.load(path, precision=name, threads=given.threads, keep_tokens=0)
                  for name in given.precisions}
    for tries in range(60):
        try:
            llama_rate(4)
            break
        except OSError:
            if tries == 59:
                raise
            time.sleep(1)
    rates: dict[str, list[float]] = {"llama.cpp": []} | {name: [] for name in generators}
    for _ in range(given.turns):
        rates["llama.cpp"].append(llama_rate(TOKENS))
        for name, generator in generators.items():
            rates[name].append(engine_rate(generator))
    for name, found in rates.items():
        print(f"{name:<10} best {max(found):6.1f}   median {median(found):6.1f} tokens/s")


if __name__ == "__main__":
    main()
