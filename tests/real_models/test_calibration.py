"""The golden classifier of Django's messages on the real all-MiniLM-L6-v2: the same logits, and a calibrated file."""

import json

import numpy as np
import pytest

from engine import Engine, calibrate, load_model, save

from ..tools import minilm
from ..tools.minilm_classifier import write_classifier
from ..tools.paths import HEADS

pytest.importorskip("tokenizers")
pytestmark = pytest.mark.skipif(not minilm.FOLDER.exists(), reason=minilm.MISSING)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    document = json.loads((HEADS / "calibration.json").read_text(encoding="utf-8"))
    with np.load(HEADS / "calibration.npz") as file:
        return write_classifier(tmp_path_factory.mktemp("django") / "model", minilm.FOLDER, document["apps"],
                                file["weight"], file["bias"])


@pytest.fixture(scope="module")
def texts():
    document = json.loads((HEADS / "calibration.json").read_text(encoding="utf-8"))
    return [one["text"] for one in document["texts"]], [one["app"] for one in document["texts"]]


def test_the_logits_of_the_golden_file(folder, texts):
    engine = Engine.load(folder)
    labels = engine.heads["classify"].labels
    rows = engine.classify(texts[0], top_k=None, function_to_apply="none")
    found = np.array([[{one["label"]: one["score"] for one in row}[label] for label in labels] for row in rows])
    with np.load(HEADS / "calibration.npz") as file:
        expected = file["held.float32"][: len(found)]
        assert [labels[i] for i in file["held.labels"][: len(found)]] == texts[1]
    # Logits of up to 25, by weights of up to 100: those of the reference backend differ by 6e-5.
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-3)


def test_a_calibrated_file(folder, texts, tmp_path):
    report = calibrate(Engine.load(folder, threads=1), *texts, bias=False)
    assert report.temperature > 2
    assert report.after.ece < report.before.ece
    save(load_model(folder).with_calibration(report.calibration), tmp_path / "m.npz")
    engine = Engine.load(tmp_path / "m.npz", threads=2)
    whole = engine.classify(texts[0], coverage=0.9, false_alarm_rate=None)
    assert [engine.classify(text, coverage=0.9, false_alarm_rate=None) for text in texts[0][:20]] == whole[:20]
    held = np.random.default_rng(0).permutation(len(texts[0]))[len(texts[0]) // 2 :]
    right = [texts[1][i] in {one["label"] for one in whole[i]["labels"]} for i in held]
    assert np.mean(right) >= 0.9        # of the texts that gave the threshold
