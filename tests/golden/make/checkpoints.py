"""Make the golden files of the reader of checkpoints: small files of torch.save in each of its formats.

    python -m tests.golden.make.checkpoints

The script writes checkpoints/*.bin in tests/golden, and checkpoints/expected.npz with the numbers of all tensors:
float32, and float16 for the one in half precision. `tests/files/test_torch_checkpoint.py` says what each file is for.
"""

from collections import OrderedDict

import numpy as np
import torch

from tests.tools.paths import CHECKPOINTS


def tensors() -> OrderedDict[str, torch.Tensor]:
    """Return a state dict with every dtype that the reader takes, and with every way to lie in a storage."""
    generator = torch.Generator().manual_seed(0)
    base = torch.randn(6, 4, generator=generator)
    return OrderedDict(
        plain=base,
        half=torch.randn(3, 5, generator=generator).half(),
        bfloat16=torch.randn(3, 5, generator=generator).bfloat16(),
        double=torch.randn(7, generator=generator, dtype=torch.float64),
        transposed=base.T,
        part=base[2:5, 1:3],
        row=base[3],
        tied=base,
        stepped=torch.arange(20.0)[3::4],
        turned=torch.randn(2, 3, 4, generator=generator).permute(2, 0, 1),
        scalar=torch.tensor(2.5),
        parameter=torch.nn.Parameter(torch.randn(2, 2, generator=generator)),
        position_ids=torch.arange(9).expand((1, -1)),
    )


def main() -> None:
    """Write the files."""
    CHECKPOINTS.mkdir(exist_ok=True)
    state = tensors()
    torch.save(state, CHECKPOINTS / "zip.bin")
    torch.save(dict(state), CHECKPOINTS / "protocol4.bin", pickle_protocol=4)
    torch.save(state, CHECKPOINTS / "legacy.bin", _use_new_zipfile_serialization=False)
    nested = {"epoch": 3, "loss": 0.25, "name": "x", "best": None, "done": True, "steps": [1, 2, -70_000],
              "dtype": torch.float32, "shape": torch.Size([2, 3]), "state_dict": state}
    torch.save(nested, CHECKPOINTS / "nested.bin")
    linear = torch.nn.Linear(3, 2)
    torch.save(linear.state_dict(), CHECKPOINTS / "metadata.bin")
    torch.save(linear, CHECKPOINTS / "module.bin")
    torch.save(linear, CHECKPOINTS / "module_legacy.bin", _use_new_zipfile_serialization=False)
    arrays = {name: tensor.detach() for name, tensor in state.items() if name != "position_ids"}
    arrays |= {f"linear.{name}": tensor for name, tensor in linear.state_dict().items()}
    expected = {name: (tensor if name == "half" else tensor.float()).numpy() for name, tensor in arrays.items()}
    np.savez_compressed(CHECKPOINTS / "expected.npz", **expected)


if __name__ == "__main__":
    main()
