"""Label the texts that a classifier is sure of, and leave the others to a person, with a promise about the errors.

    python examples/sure_labels.py MODEL labelled.tsv texts.txt [COVERAGE]

MODEL is the folder of a classifier. Lines of labelled.tsv have a label, a tab and a text, those of texts.txt a text. A
text gets a label if its set of labels has one member. The set holds the right label with the probability COVERAGE, so a
wrong label is written for at most 1 - COVERAGE of all texts, if they are like the labelled ones.
"""

import sys
from pathlib import Path
from typing import Any

from engine import CalibrationReport, Engine, calibrate


def read(path: str) -> tuple[list[str], list[str]]:
    """Return the texts and the labels of a file."""
    rows = [line.split("\t") for line in Path(path).read_text(encoding="utf-8").splitlines()]
    return [text for _, text in rows], [label for label, _ in rows]


def describe(report: CalibrationReport) -> str:
    """Say what the calibration changes, for people; measures are those of texts that it was not fitted to."""
    assert report.before is not None
    assert report.after is not None
    return (f"temperature {report.temperature:.2f}; of {report.after.count:,} texts {report.after.accuracy:.1%} right, "
            f"calibration error {report.before.ece:.3f} before and {report.after.ece:.3f} after")


def sort_out(engine: Engine, texts: list[str], coverage: float) -> tuple[list[tuple[str, str]], list[dict[str, Any]]]:
    """Return the texts that have one label, with it, and the others, with their sets, the most doubtful first."""
    sure, unsure = [], []
    for text, result in zip(texts, engine.classify(texts, coverage=coverage), strict=True):
        labels = [one["label"] for one in result["labels"]]
        if len(labels) == 1:
            sure.append((labels[0], text))
        else:
            unsure.append({"text": text, "labels": labels, "margin": result["margin"]})
    return sure, sorted(unsure, key=lambda one: one["margin"])


def main(model: str, labelled: str, file: str, coverage: str = "0.9") -> None:
    engine = Engine.load(model)
    report = calibrate(engine, *read(labelled))
    print(describe(report), file=sys.stderr)
    texts = Path(file).read_text(encoding="utf-8").splitlines()
    sure, unsure = sort_out(engine.with_calibration(report.calibration), texts, float(coverage))
    for label, text in sure:
        print(f"{label}\t{text}")
    for one in unsure:
        print(f"?\t{one['text']}\t{' or '.join(one['labels']) or 'none of the labels'}")


if __name__ == "__main__":
    main(*sys.argv[1:])
