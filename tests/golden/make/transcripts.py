"""Make transcripts.json: the segments that faster-whisper finds in the recordings of tests/speech/test_recordings.py.

    pip install -r tests/golden/make/requirements-speech.txt
    ENGINE_WHISPER=... ENGINE_SPEECH=... python -m tests.golden.make.transcripts

The environment variables are those of tests/tools/whisper.py. faster-whisper reads the samples that
`engine.read_audio` gives, with greedy search, without a fallback to higher temperatures, without past text and
without looking for silence by another model. transcripts.json holds, by the name of a recording, [start, end, text] of
each segment, and under the name words the same of each word, for the recordings `SHORT`.
"""

import json

from faster_whisper import WhisperModel

from tests.tools.paths import SPEECH
from tests.tools.speech import SHORT, joined_recordings
from tests.tools.whisper import FOLDER

OPTIONS = {"beam_size": 1, "temperature": 0.0, "condition_on_previous_text": False, "vad_filter": False,
           "language": "en", "compression_ratio_threshold": None}  # fmt: skip


def main() -> None:
    """Write the file."""
    model = WhisperModel(str(FOLDER), device="cpu", compute_type="float32")
    found, words = {}, {}
    for name, samples in joined_recordings().items():
        segments, _ = model.transcribe(samples, **OPTIONS)
        found[name] = [[round(s.start, 2), round(s.end, 2), s.text] for s in segments]
        if name in SHORT:
            segments, _ = model.transcribe(samples, word_timestamps=True, **OPTIONS)
            found_words = [word for segment in segments for word in segment.words]
            words[name] = [[round(float(w.start), 2), round(float(w.end), 2), w.word] for w in found_words]
    text = json.dumps(found | {"words": words}, indent=1, ensure_ascii=False)
    (SPEECH / "transcripts.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
