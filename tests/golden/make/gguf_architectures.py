"""Make the golden answers of llama.cpp for tiny GGUF files of every architecture that the engine reads.

    python -m tests.golden.make.gguf_architectures LLAMA_SERVER [NAME ...]

LLAMA_SERVER is the program llama-server, built from the sources in the package llama-cpp-python 0.3.36 for a CPU:
cmake -B build -DGGML_NATIVE=ON -DLLAMA_CURL=OFF && cmake --build build --target llama-server. The files are those of
tests/tools/golden_gguf.py and gguf_encoders.py.

gguf_architectures.npz holds, by the name of the golden model, the log-probabilities [61] of the token that follows the
golden sequence of 17 tokens; and for an embedder the vector of unit length of the text `TEXT`. Keys and values are kept
in float32. llama.cpp computes GELU from a table of float16, so that the answers of such models differ by 0.001.
"""

import json
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np

from tests.tools.gguf_encoders import FILES, file_of
from tests.tools.golden_generating import NAMES, Expected
from tests.tools.golden_gguf import WRITTEN, config_of, gguf_of
from tests.tools.paths import DECODERS

PORT, TEXT = 18231, "the cats sat on a mat!"
LEFT_OUT = ("cohere2", "ernie4_5", "gpt_bigcode_heads", "llama_scaled", "phi3", "qwen2_windows", "seed_oss")
"""Models with options that their GGUF files do not state, or that llama.cpp leaves out (biases, the window of Phi-3) or
refuses (heads as wide as those of this golden model of Command R7B)."""


def asked(path: str, body: dict[str, Any]) -> Any:
    """Return the answer of the server to a request."""
    request = urllib.request.Request(f"http://127.0.0.1:{PORT}{path}", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def served(program: str, data: bytes, path: str, body: dict[str, Any], *options: str) -> Any:
    """Return the answer of a server of one file, and None where it does not start."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "m.gguf"
        file.write_bytes(data)
        process = subprocess.Popen(
            [program, "-m", str(file), "--port", str(PORT), "-c", "64", "-np", "1", "-t", "1", "-fa", "off",
             "--cache-type-k", "f32", "--cache-type-v", "f32", "--no-warmup", *options],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        try:
            for _ in range(200):
                if process.poll() is not None:
                    print(process.stderr.read().decode(errors="replace")[-600:])
                    return None
                try:
                    return asked(path, body)
                except (urllib.error.URLError, ConnectionError) as error:
                    if isinstance(error, urllib.error.HTTPError) and error.code != 503:
                        print(error.read()[:300])
                        return None
                    time.sleep(0.05)
            return None
        finally:
            process.kill()
            process.wait()


def log_probabilities(program: str, name: str) -> np.ndarray | None:
    """Return the log-probabilities of all tokens behind a golden sequence."""
    _, ids, expected, _ = Expected(name).sequences[2]
    answer = served(program, gguf_of(name), "/completion", {
        "prompt": ids.tolist(), "n_predict": 1, "n_probs": 61, "temperature": 0.0, "cache_prompt": False})
    if answer is None:
        return None
    found = np.full(61, np.nan, np.float32)
    for one in answer["completion_probabilities"][0]["top_logprobs"]:
        found[one["id"]] = one["logprob"]
    last = expected[-1].astype(np.float64)
    right = last - np.log(np.exp(last - last.max()).sum()) - last.max()
    print(f"{name}: {np.abs(found - right).max():.2g} from transformers")
    return found


def main(program: str, names: list[str]) -> None:
    """Write the file, or only some of its answers anew."""
    path = DECODERS / "gguf_architectures.npz"
    with np.load(path) if path.exists() else tempfile.SpooledTemporaryFile() as file:
        arrays = dict(file) if path.exists() else {}
    for name in NAMES:
        wanted = config_of(name)["model_type"] in WRITTEN and name not in LEFT_OUT and (not names or name in names)
        if wanted and (found := log_probabilities(program, name)) is not None:
            arrays[name] = found
    for name in FILES:
        if not names or name in names:
            answer = served(program, file_of(name)[0], "/embedding", {"content": TEXT, "embd_normalize": 2},
                            "--embedding")
            if answer is not None:
                vector = np.array(answer[0]["embedding"], np.float32).reshape(-1)
                arrays[name] = vector / np.linalg.norm(vector)
                print(name, vector.shape)
    np.savez_compressed(path, **arrays)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
