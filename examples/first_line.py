"""Answer each question with one line: a stop text ends a result in the middle of what the model would write.

    python examples/first_line.py model.gguf "The capital of France is" "Two and two are"
"""

from __future__ import annotations

import sys

import engine


def main(path: str, *texts: str) -> None:
    generator = engine.Generator.load(path, precision="int8")
    results = generator.generate(texts, stop=["\n", "."], include_stop=True, max_new_tokens=40)
    for text, result in zip(texts, results, strict=True):
        print(f"{text}{result.text.rstrip()}    [{result.finish_reason}, {len(result.ids)} tokens]")


if __name__ == "__main__":
    main(*sys.argv[1:])
