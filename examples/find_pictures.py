"""Find pictures by what you say of them.

    python examples/find_pictures.py MODEL FOLDER "a dog on a beach" "two people at a table"

MODEL is a CLIP or SigLIP model, such as the folder of openai/clip-vit-base-patch32, and FOLDER has files of pictures.
Each line of the result has a score, the cosine of the vectors of a text and a picture, and the picture's path.
"""

import sys
from pathlib import Path

import numpy as np

from engine import Engine

KINDS = {".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff"}
"""The endings of the files that are read."""
BEST = 3
"""How many pictures are shown for each text."""


def pictures(folder: str) -> list[Path]:
    """Return the paths of the pictures in a folder and in those below it."""
    return sorted(path for path in Path(folder).rglob("*") if path.suffix.lower() in KINDS)


def main(model: str, folder: str, *texts: str) -> None:
    engine, paths = Engine.load(model), pictures(folder)
    vectors = engine.encode(paths, normalize_embeddings=True)
    for text, scores in zip(texts, engine.encode(list(texts), normalize_embeddings=True) @ vectors.T, strict=True):
        print(text)
        for i in np.argsort(-scores, kind="stable")[:BEST]:
            print(f"{scores[i]:7.3f}  {paths[i]}")


if __name__ == "__main__":
    main(*sys.argv[1:])
