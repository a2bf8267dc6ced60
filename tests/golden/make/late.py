"""Make late.npz: the vectors and scores that sentence-transformers' MultiVectorEncoder gives.

    python -m tests.golden.make.late

The folders are those of tests/tools/late_folders.py. late.npz has for each under "NAME query", "NAME document" and
"NAME none" the vectors of all texts of a task, float32 [N, D], with their numbers under "NAME query sizes" and so on;
and under "NAME scores" the similarities of queries and documents.
"""

import tempfile
from pathlib import Path

import numpy as np
import torch
from sentence_transformers import MultiVectorEncoder

from tests.tools import late_folders as folders
from tests.tools.paths import HEADS

from .quiet import one_quiet_thread


def main() -> None:
    one_quiet_thread()
    found: dict[str, np.ndarray] = {}
    with tempfile.TemporaryDirectory() as place:
        for name in (*folders.CASES, *folders.OLDER):
            write = folders.write_late if name in folders.CASES else folders.write_older
            folder = write(Path(place, name), name)
            model = MultiVectorEncoder(str(folder), device="cpu", model_kwargs={"dtype": torch.float32})
            vectors = {"query": model.encode_query(list(folders.ROLES["query"])),
                       "document": model.encode_document(list(folders.ROLES["document"])),
                       "none": model.encode(list(folders.ROLES["none"]))}
            for role, rows in vectors.items():
                found[f"{name} {role}"] = torch.cat(rows).numpy()
                found[f"{name} {role} sizes"] = np.array([len(row) for row in rows])
            found[f"{name} scores"] = model.similarity(vectors["query"], vectors["document"]).numpy()
    np.savez_compressed(HEADS / "late.npz", **found)


if __name__ == "__main__":
    main()
