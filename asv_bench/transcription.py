"""Time speech to text with Whisper in turns: the engine, and faster-whisper on the same model.bin.

    python asv_bench/transcription.py MODEL RECORDING.wav [RECORDING.wav ...] [--turns 5] [--threads 2]
        [--precisions float32 int8] [--beams 1]

It needs faster-whisper (pip install faster-whisper==1.2.1). MODEL is a folder of CTranslate2. Both libraries write
segments with times, without past text, without higher temperatures and without voice detection; faster-whisper gets
the samples that the engine reads from the files, one recording after the other, and so does the engine. Each turn times
both libraries once, the first one second in the next turn, so that other load on the machine affects both. Printed are
seconds of audio for each second: the median of all turns and the best turn; and whether the segments are equal.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from statistics import median

import numpy as np
from faster_whisper import WhisperModel

from engine.interface.transcriber import Transcriber
from engine.speech.audio_files import read_audio
from engine.speech.samples import RATE

Segments = list[tuple[float, float, str]]
Library = Callable[[np.ndarray], Segments]
"""samples -> the segments of a recording."""


def engine_of(path: str, precision: str, threads: int, beams: int) -> Library:
    """Return the engine."""
    transcriber = Transcriber.load(path, precision=precision, threads=threads)

    def run(samples: np.ndarray) -> Segments:
        [found] = transcriber.transcribe([samples], timestamps=True, language="en", num_beams=beams)
        return [(round(s.start, 2), round(s.end, 2), s.text) for s in found.segments]

    return run


def faster_whisper_of(path: str, precision: str, threads: int, beams: int) -> Library:
    """Return faster-whisper."""
    model = WhisperModel(path, device="cpu", compute_type=precision, cpu_threads=threads)

    def run(samples: np.ndarray) -> Segments:
        segments, _ = model.transcribe(samples, language="en", beam_size=beams, temperature=0.0, vad_filter=False,
                                       condition_on_previous_text=False, compression_ratio_threshold=None)
        return [(round(s.start, 2), round(s.end, 2), s.text) for s in segments]

    return run


def main() -> None:
    """Print one line for each precision and library."""
    parser = argparse.ArgumentParser(description="speech to text in turns: the engine and faster-whisper")
    parser.add_argument("model")
    parser.add_argument("audio", nargs="+")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--beams", type=int, default=1)
    parser.add_argument("--precisions", nargs="+", default=["float32", "int8"])
    args = parser.parse_args()
    recordings = [read_audio(path) for path in args.audio]
    length = sum(len(recording) for recording in recordings) / RATE
    for precision in args.precisions:
        libraries = {"encoder-engine": engine_of(args.model, precision, args.threads, args.beams),
                     "faster-whisper": faster_whisper_of(args.model, precision, args.threads, args.beams)}
        # The first run also warms the libraries up.
        results = {name: [run(recording) for recording in recordings] for name, run in libraries.items()}
        times: dict[str, list[float]] = {name: [] for name in libraries}
        for turn in range(args.turns):
            for name in [*libraries][:: -1 if turn % 2 else 1]:
                start = time.perf_counter()
                for recording in recordings:
                    libraries[name](recording)
                times[name].append(time.perf_counter() - start)
        equal = "equal" if results["encoder-engine"] == results["faster-whisper"] else "not equal"
        for name, found in times.items():
            middle, best = length / median(found), length / min(found)
            print(f"{precision:8} {name:15} median {middle:6.1f}  best {best:6.1f} seconds of audio a second; segments "
                  f"{equal}", flush=True)


if __name__ == "__main__":
    main()
