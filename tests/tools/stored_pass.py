"""Run a model on a stand-in for a GPU with stored kernels alone, and print what was loaded and whether it is right.

    python -m tests.tools.stored_pass FOLDER     FOLDER: for the stored kernels
"""

import sys
from pathlib import Path

import numpy as np

from engine.backends.numba_cuda import stored
from engine.backends.numba_cuda.device import Gpu
from engine.backends.numba_cuda.kernel import Code
from engine.backends.numba_cuda.plan import CudaPlan
from engine.backends.reference import ReferenceBackend
from engine.model.config import ModelConfig
from engine.model.run_config import RunConfig

from . import fake_cuda
from .batches import make_batch
from .decoders import make_weights

COMPILERS = {"numba", "numba_cuda", "llvmlite"}


def main(folder: Path) -> None:
    """Store stand-ins for the code of all kernels, run a model with them, and compare it with the reference."""
    config = ModelConfig("test", hidden_size=384, num_layers=1, num_heads=2, head_width=16, ffn_size=12, vocab_size=9,
                         max_positions=4, token_types=2)
    kernels = {kernel.name: kernel for kernel in stored.catalogue()}
    stored.ARCHIVES = folder
    stored.write_archive(folder / "sm_80.cubin.zip", {
        name: (kernel, Code("cubin", "entry", name.encode())) for name, kernel in kernels.items()})
    fake_cuda.install(kernels=kernels)
    batch, weights = make_batch(config, [2, 1]), make_weights(config)
    out = CudaPlan(Gpu(), config, weights, RunConfig(1, "float32", 16)).forward(batch)
    expected = ReferenceBackend(np.float64).prepare(config, weights, RunConfig()).forward(batch)
    right = np.linalg.norm(out - expected) <= 1e-5 * np.linalg.norm(expected)
    imported = COMPILERS & {name.partition(".")[0] for name in sys.modules}
    print(f"{'right' if right else 'wrong'}, {', '.join(imported) or 'no compiler'}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
