"""Implement `engine transcribe`."""

from __future__ import annotations

import argparse
import sys

from ...speech.tokens import TASKS
from ..transcriber import Transcriber


def add_options(command: argparse.ArgumentParser) -> None:
    """Add the options of the command, except those of the backend."""
    command.add_argument("model", help="Whisper's folder or .npz")
    command.add_argument("audio", nargs="+", help="WAV file of any rate and any length")
    command.add_argument("--language", help="code of the language that is spoken, such as de; by default a model of "
                         "several languages finds it")  # fmt: skip
    command.add_argument("--task", default=TASKS[0], choices=TASKS, help="translate writes English")
    times = command.add_mutually_exclusive_group()
    times.add_argument("--timestamps", action="store_true", help="write a line with its times for each segment")
    times.add_argument("--words", action="store_true", help="write a line with its times for each word")
    command.add_argument("--num-beams", type=int, help="beams of a beam search; 1 is greedy search")


def run(args: argparse.Namespace) -> None:
    """Write the text of each recording to standard output."""
    transcriber = Transcriber.load(args.model, backend=args.backend, threads=args.threads, precision=args.precision)
    settings = {} if args.num_beams is None else {"num_beams": args.num_beams}
    timestamps = "word" if args.words else args.timestamps
    found = transcriber.transcribe(args.audio, language=args.language, task=args.task, timestamps=timestamps,
                                   show_progress_bar=sys.stderr.isatty(), **settings)
    for path, result in zip(args.audio, found, strict=True):
        if not timestamps:
            print(result.strip())
            continue
        if len(found) > 1:
            print(f"{path}:")
        for segment in result.segments:
            for line in segment.words if args.words else [segment]:
                print(f"[{clock(line.start)} - {clock(line.end)}] {line.text.strip()}")


def clock(seconds: float) -> str:
    """Return a time as minutes, seconds and hundredths, such as 1:02.50."""
    minutes, hundredths = divmod(round(100 * seconds), 6000)
    return f"{minutes}:{hundredths / 100:05.2f}"
