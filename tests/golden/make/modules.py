"""Make modules.npz and wordllama.npy: vectors of static models, chains of modules and routes in other libraries.

    pip install --no-deps --target models wordllama==0.4.0.post1
    python -m tests.golden.make.modules models/wordllama

The libraries are sentence-transformers and model2vec, and the folders those of tests/tools/module_folders.py.
modules.npz has the vectors of some texts, [n, D] in float32, under these names: "static NAME"; "chain SEED"; and
"route NAME, TASK", where TASK is "none" for no task, or "encode_query" or "encode_document" for that method.
wordllama.npy has the vectors of all texts by the real table of wordllama (MIT), in the layout of StaticEmbedding.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
from model2vec import StaticModel
from sentence_transformers import SentenceTransformer, SparseEncoder

from tests.tools import head_texts as texts
from tests.tools import module_folders as folders
from tests.tools.paths import HEADS

from .quiet import one_quiet_thread


def static_vectors(folder: Path, name: str) -> np.ndarray:
    some = list(texts.TEXTS)
    if name.startswith("model2vec"):
        return np.asarray(StaticModel.from_pretrained(folder).encode(some))
    return np.asarray(SentenceTransformer(str(folder), device="cpu").float().encode(some))


def main(wordllama: str) -> None:
    one_quiet_thread()
    found: dict[str, np.ndarray] = {}
    with tempfile.TemporaryDirectory() as place:
        for name in folders.STATICS:
            found[f"static {name}"] = static_vectors(folders.write_static(Path(place, name), name), name)
        for seed in range(folders.CHAINS):
            folder = str(folders.write_chain(Path(place, str(seed)), seed))
            model = SentenceTransformer(folder, device="cpu")
            found[f"chain {seed}"] = np.asarray(model.encode(list(texts.TEXTS[:4])))
        for name in folders.ROUTERS:
            folder = str(folders.write_router(Path(place, name), name))
            sparse = name == "sparse query"
            kind = SparseEncoder if sparse else SentenceTransformer
            model = kind(folder, device="cpu")
            options = {"convert_to_sparse_tensor": False, "convert_to_tensor": True} if sparse else {}
            some = list(texts.TEXTS[:12])
            tasks = {"query": model.encode, "document": model.encode}
            for task, encode in tasks.items():
                found[f"route {name}, {task}"] = np.asarray(encode(some, task=task, **options))
            found[f"route {name}, encode_query"] = np.asarray(model.encode_query(some, **options))
            found[f"route {name}, encode_document"] = np.asarray(model.encode_document(some, **options))
            if name != "no default":
                found[f"route {name}, none"] = np.asarray(model.encode(some, **options))
    assert all(array.ndim == 2 and np.isfinite(array).all() for array in found.values())
    np.savez_compressed(HEADS / "modules.npz", **{name: np.asarray(array, np.float32) for name, array in found.items()})


    with tempfile.TemporaryDirectory() as place:
        folders.write_wordllama(Path(place), Path(wordllama))
        model = SentenceTransformer(place, device="cpu").float()     # the file has float16
        np.save(HEADS / "wordllama.npy", np.asarray(model.encode(list(texts.TEXTS))))


if __name__ == "__main__":
    main(sys.argv[1])
