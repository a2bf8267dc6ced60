"""Implement `engine transcribe`: the texts of recordings, as lines, JSON or subtitles."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ..base.errors import InputError
from ..interface.transcriber import Transcriber
from ..methods.transcribe import TranscribeOptions
from ..speech.subtitles import json_line, srt_lines, text_lines, vtt_lines
from ..speech.tokens import TASKS
from .console import STDIO, add_model, add_output, check_output, check_stdin, run_options, writing_lines

BY_SUFFIX = {".json": "json", ".jsonl": "json", ".srt": "srt", ".vtt": "vtt"}
"""The format of an output file, by the end of its name."""


def add_options(command: argparse.ArgumentParser) -> None:
    """Add the options of the command, except those of the backend."""
    add_model(command, "folder or .npz of Whisper, wav2vec 2.0 or HuBERT")
    command.add_argument("audio", nargs="+", help="audio file of any length: WAV, FLAC, OGG or MP3, and what ffmpeg "
                         "reads where it is installed; - for standard input")
    add_output(command)
    command.add_argument("--language", help="language that is spoken, such as de or German; by default a model of "
                         "several languages finds it")
    command.add_argument("--task", default=TranscribeOptions.task, choices=TASKS, help="translate writes English")
    times = command.add_mutually_exclusive_group()
    times.add_argument("--timestamps", action="store_true", help="write a line with its times for each segment")
    times.add_argument("--words", action="store_true", help="write a line with its times for each word")
    formats = command.add_mutually_exclusive_group()     # by default, the end of the output file's name decides
    formats.add_argument("--json", dest="form", action="store_const", const="json",
                         help="write a line of JSON for each recording, with its segments; with --words, their words")
    for form, name in (("srt", "SubRip"), ("vtt", "WebVTT")):
        formats.add_argument(f"--{form}", dest="form", action="store_const", const=form,
                             help=f"write the subtitles of one recording, in {name}; with --words, one for each word")
    command.add_argument("--num-beams", type=int, help="beams of a beam search; 1 is greedy search")


def run(args: argparse.Namespace) -> None:
    """Write what the recordings say to standard output or to a file."""
    args.form = args.form or BY_SUFFIX.get(Path(args.output).suffix.lower())
    if args.form in ("srt", "vtt") and len(args.audio) > 1:
        raise InputError(f"{args.form} holds the subtitles of one recording; call the command once for each")
    if args.audio.count(STDIO) > 1:
        raise InputError("standard input holds one recording; give - once")
    if STDIO in args.audio:
        check_stdin("give the path of a recording, or send one over a pipe")
    check_output(args.output, "lines of text, JSON or subtitles")
    transcriber = Transcriber.load(args.model, **run_options(args, "cache", "revision"))
    settings = {} if args.num_beams is None else {"num_beams": args.num_beams}
    timestamps = "word" if args.words else args.timestamps or args.form is not None
    audio = [sys.stdin.buffer if name == STDIO else name for name in args.audio]
    results = transcriber.transcriptions(audio, language=args.language, task=args.task, timestamps=timestamps,
                                         show_progress_bar=sys.stderr.isatty(), **settings)
    with writing_lines(args.output) as write:
        for line in _lines(args, bool(timestamps), results):
            write(line)


def _lines(args: argparse.Namespace, timed: bool, results: Iterable[Any]) -> Iterator[str]:
    """Yield the lines to write for the results of all recordings.

    timed: whether the results are transcripts with times, and not texts.
    """
    for name, result in zip(args.audio, results, strict=True):
        if args.form == "json":
            yield json_line(name, result, args.words)
        elif args.form is not None:
            yield from (srt_lines if args.form == "srt" else vtt_lines)(result, args.words)
        elif timed:
            yield from text_lines(name if len(args.audio) > 1 else None, result, args.words)
        else:
            yield result.strip()
