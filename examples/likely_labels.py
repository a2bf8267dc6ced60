"""Label texts with a language model that was trained for no labels: the label wins that is likeliest behind the text.

    python examples/likely_labels.py model.gguf positive,negative "I loved this film." "What a waste of time."
"""

from __future__ import annotations

import sys

import numpy as np

import engine

PROMPT = "Review: {text}\nThe sentiment of this review is"


def main(path: str, names: str, *texts: str) -> None:
    generator, labels = engine.Generator.load(path), names.split(",")
    prompts = [generator.tokenizer.encode(PROMPT.format(text=text)) for text in texts]
    endings = [generator.tokenizer.encode(f" {label}", add_special_tokens=False) for label in labels]
    # Each prompt is read once, however many labels follow it.
    scores = generator.score([prompt for prompt in prompts for _ in endings], endings * len(prompts))
    totals = np.array([one.total for one in scores]).reshape(len(texts), len(labels))
    likely = np.exp(totals - np.logaddexp.reduce(totals, axis=1, keepdims=True))
    for text, row in zip(texts, likely, strict=True):
        print(f"{labels[row.argmax()]}    {row.max():.0%}    {text}")


if __name__ == "__main__":
    main(*sys.argv[1:])
