"""Find the answer to a question in many texts: search with vectors, then read the best texts.

    python examples/answers.py ENCODER READER "Where did the ship sink?" texts.txt

ENCODER makes vectors, such as all-MiniLM-L6-v2, and READER answers questions, such as a model that was trained on
SQuAD. The file has a text on each line. A reader whose training had questions without an answer may answer none.
"""

import sys
from pathlib import Path
from typing import Any

from engine import Engine


def search(encoder: Engine, question: str, texts: list[str], most: int) -> list[int]:
    """Return the places of the texts whose vectors are nearest to that of the question, the nearest first."""
    similarity = encoder.similarity(encoder.encode_query(question), encoder.encode_document(texts))[0]
    return [int(place) for place in (-similarity).argsort(kind="stable")[:most]]


def read(reader: Engine, question: str, texts: list[str], places: list[int]) -> list[dict[str, Any]]:
    """Return the answer in each of these texts with the place of its text, the best first; empty answers are left out.
    """
    answers = reader.answer(question, [texts[place] for place in places], handle_impossible_answer=True)
    found = [answer | {"place": place} for answer, place in zip(answers, places, strict=True) if answer["answer"]]
    return sorted(found, key=lambda answer: -answer["score"])


def main(encoder: str, reader: str, question: str, file: str) -> None:
    texts = Path(file).read_text(encoding="utf-8").splitlines()
    places = search(Engine.load(encoder), question, texts, 10)
    answers = read(Engine.load(reader), question, texts, places)
    for answer in answers[:3]:
        text, start, end = texts[answer["place"]], answer["start"], answer["end"]
        before, after = text[max(0, start - 40) : start], text[end : end + 40]
        print(f"{answer['score']:6.3f}  ...{before}>{text[start:end]}<{after}...")
    if not answers:
        print("None of the texts answers the question.")


if __name__ == "__main__":
    main(*sys.argv[1:])
