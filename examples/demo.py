"""Encode sentences with all-MiniLM-L6-v2 or another model; print similarities, a small search, and the speed.

    make demo                          or            python examples/demo.py models/all-MiniLM-L6-v2.npz
    make demo MODEL=path/of/a/model    or            python examples/demo.py path/of/a/model
"""

import sys
from time import perf_counter

import numpy as np
from tokenizers import Tokenizer

from engine import Engine, forward_flops, load_model, measure_peak

SENTENCES = [
    "A kitten sleeps on the sofa.",
    "The young cat is napping on a couch.",
    "The goalkeeper saved a late penalty.",
    "They won the match in extra time.",
    "Bake the bread until it is golden.",
    "Knead the dough, then let it rise.",
    "The central bank raised interest rates.",
    "Borrowing money has become dearer.",
]
QUESTIONS = ["What is the pet doing?", "How do I make a loaf?", "Why does my mortgage cost more?"]
SHADES = ("  ", "░░", "▒▒", "▓▓", "██")


def main(path: str) -> None:
    model = load_model(path)
    engine = Engine(model)  # Engine.load(path) does both
    print(f"{engine!r}\n")

    tokenizer = Tokenizer.from_buffer(engine.text.tokenizer_json)
    tokenizer.no_padding()
    tokens = show_tokens(engine, tokenizer)
    vectors = engine.encode(SENTENCES, normalize_embeddings=True)
    print(f"encode   {len(SENTENCES)} sentences  ->  {list(vectors.shape)}, at unit length")
    if engine.text.pooling == ("mean",) and not model.encoder.modules:
        pooled = np.stack([rows.mean(axis=0) for rows in tokens])
        pooled /= np.linalg.norm(pooled, axis=1, keepdims=True)
        print(f"         (the means of the tokens, done here by hand: largest difference "
              f"{np.abs(vectors - pooled).max():.0e})")
    print()

    show_similarities(vectors @ vectors.T)
    show_answers(engine, vectors)
    show_speed(engine, tokenizer)


def show_tokens(engine: Engine, tokenizer: Tokenizer) -> list[np.ndarray]:
    """Run `forward` on the sentences' token ids, a ragged list; return a [T_i, D] array for each sentence."""
    tokens = engine.forward([encoding.ids for encoding in tokenizer.encode_batch(SENTENCES)])
    print(f"forward  {sum(map(len, tokens))} tokens     ->  {len(tokens)} arrays, the first {list(tokens[0].shape)}")
    return tokens


def show_similarities(similarities: np.ndarray) -> None:
    """Print the [n, n] table, with the best match of each row marked."""
    print("How alike are they? Cosine similarity; ◂ marks the best match of each row.\n")
    print(" " * 44 + "".join(f"{column:^8}" for column in range(1, len(SENTENCES) + 1)).rstrip())
    best = np.where(np.eye(len(SENTENCES), dtype=bool), -np.inf, similarities).argmax(axis=1)
    for i, sentence in enumerate(SENTENCES):
        cells = [f"{'·':^8}" if j == i else cell(similarities[i, j], j == best[i]) for j in range(len(SENTENCES))]
        print(f"{i + 1:2}  {sentence:<40}" + "".join(cells).rstrip())


def cell(similarity: float, is_best: bool) -> str:
    """Return a block whose darkness shows the similarity, and the value: eight characters."""
    shade = SHADES[min(len(SHADES) - 1, int(max(0.0, similarity) * 6))]
    return f"{shade}{similarity:5.2f}{'◂' if is_best else ' '}"


def show_answers(engine: Engine, vectors: np.ndarray) -> None:
    """Print the sentence that is nearest to each question."""
    print("\nSearch by meaning: no word need be shared.\n")
    scores = engine.encode(QUESTIONS, normalize_embeddings=True) @ vectors.T
    for question, row in zip(QUESTIONS, scores, strict=True):
        print(f"    {question:<34}->  {SENTENCES[row.argmax()]:<42}{row.max():.2f}")


def show_speed(engine: Engine, tokenizer: Tokenizer) -> None:
    """Print the speed of encoding 128 texts, and the fraction of the machine's peak that it reaches."""
    sentences = [f"{a} {b} {c}" for a in SENTENCES for b in SENTENCES for c in SENTENCES[:2]]
    lengths = [len(encoding.ids) for encoding in tokenizer.encode_batch(sentences)]
    # Both are measured in turns, so that other load on the machine slows both.
    seconds, peaks = [], []
    for _ in range(3):
        peaks.append(measure_peak(engine.threads, repeats=2).gops)
        start = perf_counter()
        engine.encode(sentences)
        seconds.append(perf_counter() - start)
    best, peak = min(seconds), max(peaks)
    gflops = forward_flops(engine.config, lengths) / best / 1e9
    print(
        f"\nSpeed on {engine.threads} threads, tokenizer included: {len(sentences) / best:,.0f} sentences/s, "
        f"{sum(lengths) / best:,.0f} tokens/s, {gflops:,.0f} GFLOP/s = {gflops / peak:.0%} of this machine's peak"
    )


if __name__ == "__main__":
    main(sys.argv[1])
