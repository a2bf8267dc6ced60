"""Mistakes in the reading of sound, and in the times of what is said."""

from __future__ import annotations

from .mistake import Mistake

MISTAKES = (
    Mistake(
        name="wav-24-bits",
        what="The three bytes of a 24-bit sample are read as the lower ones of four, so that the sign is lost.",
        file="engine/speech/wav.py",
        right="wide[:, 1:] = data.reshape(-1, 3)",
        wrong="wide[:, :3] = data.reshape(-1, 3)",
        tests="tests/speech/test_wav.py",
        caught_by=(
            "tests/speech/test_wav.py::test_each_coding",
            "tests/speech/test_wav.py::test_the_mean_of_three_channels",
        ),
    ),
    Mistake(
        name="gain-of-the-filter",
        what="Resampled sound has another loudness.",
        file="engine/speech/resampling.py",
        right="scaled: np.ndarray = taps * (up / taps.sum())",
        wrong="scaled: np.ndarray = taps * (1 / taps.sum())",
        tests="tests/speech/test_spectrogram.py",
        caught_by=(
            "tests/speech/test_spectrogram.py::test_the_samples_of_scipy_at_another_rate",
            "tests/speech/test_spectrogram.py::test_what_16_khz_can_hold_stays_and_the_rest_goes",
        ),
    ),
    Mistake(
        name="symmetric-window",
        what="The window of the spectrogram is symmetric, and not periodic.",
        file="engine/speech/spectrogram.py",
        right="bell = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(_WINDOW) / _WINDOW)",
        wrong="bell = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(_WINDOW) / (_WINDOW - 1))",
        tests="tests/speech/test_spectrogram.py",
        caught_by=(
            "tests/speech/test_spectrogram.py::test_the_features_of_transformers",
            "tests/speech/test_spectrogram.py::test_the_features_of_a_longer_sound",
        ),
    ),
    Mistake(
        name="next-window",
        what="The next window begins where this one ends, so that a segment that goes on is cut off.",
        file="engine/speech/segments.py",
        right="return found, frames if ends_in_time else max(TOKEN_FRAMES, found[-1].end)",
        wrong="return found, frames",
        tests="tests/speech/test_recordings.py",
        caught_by=(
            "tests/speech/test_recordings.py::test_windows_and_segments_by_a_slow_definition",
            "tests/speech/test_recordings.py::test_cuts",
        ),
    ),
    Mistake(
        name="segments-behind-the-window",
        what="The times of a segment do not count from the begin of the recording.",
        file="engine/speech/windows.py",
        right="Segment(seconds(self.seek + each.start), seconds(self.seek + each.end), decode(each.ids))",
        wrong="Segment(seconds(each.start), seconds(each.end), decode(each.ids))",
        tests="tests/speech/test_recordings.py",
        caught_by=(
            "tests/speech/test_recordings.py::test_windows_and_segments_by_a_slow_definition",
            "tests/speech/test_recordings.py::test_silence_and_empty_segments",
        ),
    ),
    Mistake(
        name="path-of-words",
        what="Among equal sums, the path through the weights goes on to the next token.",
        file="engine/speech/alignment.py",
        right="np.where((down < both) & (down < along), 1, 2))",
        wrong="np.where((down < both) & (down <= along), 1, 2))",
        tests="tests/speech/test_alignment.py",
        caught_by=("tests/speech/test_alignment.py::test_of_two_ways_with_equal_sums_the_path_comes_along_its_row",),
    ),
)
