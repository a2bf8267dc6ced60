"""Recordings at other rates than 16 kHz, mono and stereo: the texts of transformers on the same samples."""

import json
from itertools import product

import pytest

from engine.interface.transcriber import Transcriber

from ..tools.paths import SPEECH as GOLDEN
from ..tools.sample_rates import RATES, RECORDINGS, SEEDS, speech, tones
from ..tools.speech import listening
from ..tools.whisper import FOLDER, MISSING, SILENT, SPEECH

pytest.importorskip("tokenizers")
pytest.importorskip("soundfile")
pytest.importorskip("soxr")


def expected(kind: str, names: tuple) -> list[list]:
    """Return rows [name, rate, channels, text], which tests/golden/make/sample_rates.py wrote."""
    rows = json.loads((GOLDEN / "sample_rates.json").read_text(encoding="utf-8"))[kind]
    assert [tuple(row[:3]) for row in rows] == [*product(names, RATES, (1, 2))]
    return rows


def test_the_texts_of_a_random_model():
    rows = expected("tones", SEEDS)
    found = Transcriber(listening(), backend="auto").transcribe([tones(*row[:3]) for row in rows])
    assert found == [row[3] for row in rows]
    assert len(set(found)) == 2 * len(SEEDS), "left and right are heard together"


@pytest.mark.skipif(not FOLDER.exists(), reason=MISSING)
@pytest.mark.skipif(not SPEECH.exists(), reason=SILENT)
def test_the_texts_of_the_real_model():
    rows = expected("speech", tuple(RECORDINGS))
    found = Transcriber.load(FOLDER).transcribe([speech(*row[:3]) for row in rows])
    assert found == [row[3] for row in rows]
