"""Make embedders.npz: the vectors of tiny embedders in the forms of published ones, by sentence-transformers.

    python -m tests.golden.make.embedders

The folders are those of tests/tools/embedder_folders.py. embedders.npz has the vectors of some texts of each, [n, D] in
float32, under its name. The script also writes the transformers that these folders alone have into folders of heads/,
in float32 and with random weights.
"""

import json
import shutil
import tempfile
from pathlib import Path

import numpy as np
import torch
import transformers as hf
from sentence_transformers import SentenceTransformer

from tests.tools import embedder_folders as folders
from tests.tools import head_texts as texts
from tests.tools.paths import HEADS

from .heads import QWEN3, SIZES
from .quiet import one_quiet_thread

GEMMA = QWEN3 | {"num_key_value_heads": 1, "sliding_window": 16, "query_pre_attn_scalar": 8, "num_hidden_layers": 3,
                 "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
                 "use_bidirectional_attention": True}


def make_own_models() -> None:
    """Write the transformers that no other test has."""
    made = {"bert_pieces": (hf.BertModel, SIZES), "gemma3_pieces": (hf.Gemma3TextModel, SIZES | GEMMA)}
    for name, (kind, sizes) in made.items():
        torch.manual_seed(0)
        model = kind(kind.config_class(**sizes, initializer_range=0.3))
        with torch.no_grad():       # a mistake with zeros would not show
            for parameter in model.parameters():
                if parameter.dim() == 1:
                    parameter.add_(0.1 * torch.randn_like(parameter))
        folder = HEADS / name
        shutil.rmtree(folder, ignore_errors=True)
        model.save_pretrained(folder)
        settings = {"tokenizer": "unigram", "task": "embed", "pairs": False}
        (folder / "expected.json").write_text(json.dumps(settings) + "\n", encoding="utf-8")


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
