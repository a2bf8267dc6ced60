"""Make embedders.npz: the vectors of tiny embedders in the forms of published ones, by sentence-transformers.

    python -m tests.golden.make.embedders

The folders are those of tests/tools/embedder_folders.py. embedders.npz has the vectors of some texts of each, [n, D] in
float32, under its name. The script also writes the transformers that these folders alone have into folders of heads/,
in float32 and with random weights.
"""

import tempfile
from pathlib import Path

import numpy as np
import torch
import transformers as hf
from sentence_transformers import SentenceTransformer

from tests.tools import embedder_folders as folders
from tests.tools import head_texts as texts
from tests.tools.paths import HEADS

from .quiet import one_quiet_thread


def make_own_models() -> None:
    """Write the transformers that no other test has, from their config.json."""
    for name in ("bert_pieces", "gemma3_pieces"):
        folder = HEADS / name
        kept = (folder / "config.json").read_bytes()
        torch.manual_seed(0)
        model = hf.AutoModel.from_config(hf.AutoConfig.from_pretrained(folder))
        with torch.no_grad():       # a mistake with zeros would not show
            for parameter in model.parameters():
                if parameter.dim() == 1:
                    parameter.add_(0.1 * torch.randn_like(parameter))
        model.save_pretrained(folder)
        (folder / "config.json").write_bytes(kept)


def main() -> None:
    one_quiet_thread()
    make_own_models()
    found: dict[str, np.ndarray] = {}
    with tempfile.TemporaryDirectory() as place:
        for name in folders.EMBEDDERS:
            folder = str(folders.write_embedder(Path(place, name), name))
            model = SentenceTransformer(folder, device="cpu")
            # transformers puts another pipeline in place of that of tokenizer.json for some model types, such as qwen2.
            model[0].processor = hf.PreTrainedTokenizerFast.from_pretrained(folder)
            found[name] = np.asarray(model.encode(list(texts.TEXTS[:6])), np.float32)
            print(name, found[name].shape, flush=True)
    assert all(array.ndim == 2 and np.isfinite(array).all() for array in found.values())
    np.savez_compressed(HEADS / "embedders.npz", **found)


if __name__ == "__main__":
    main()
