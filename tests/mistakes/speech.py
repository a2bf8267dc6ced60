"""Mistakes in the reading of sound, and in the times of what is said."""

from __future__ import annotations

from .mistake import Mistake

MISTAKES = (
    Mistake(
        name="seeks-between-blocks",
        what="The library seeks after each block, and the decoder of MP3 starts anew.",
        file="engine/speech/audio_files.py",
        right="audio.seekable = lambda: False",
        wrong="audio.seekable = lambda: True",
        tests="tests/speech/test_audio_files.py",
        caught_by=("tests/speech/test_audio_files.py::test_a_recording_in_each_container",),
    ),
    Mistake(
        name="resampling-in-one-step",
        what="Rates that are no multiples are converted in one step, which dampens the upper end of the band.",
        file="engine/speech/resampling.py",
        right="if rate % target == 0 or target % rate == 0:",
        wrong="if rate > 0:",
        tests="tests/speech/test_resampling.py",
        caught_by=("tests/speech/test_resampling.py::test_tones_that_both_rates_hold_keep_their_samples",),
    ),
    Mistake(
        name="loudest-place-of-the-window",
        what="The features of a window are scaled by the loudest place of the window, and not of the recording.",
        file="engine/speech/spectrogram.py",
        right="first - starts[0] + count], self._largest)",
        wrong="first - starts[0] + count], mel.max())",
        tests="tests/speech/test_spectrogram.py",
        caught_by=("tests/speech/test_spectrogram.py::test_windows_have_the_bits_of_all_features_at_once",),
    ),
    Mistake(
        name="transform-of-numpy",
        what="Features with portable bits take NumPy's Fourier transform, whose bits depend on its version.",
        file="engine/speech/spectrogram.py",
        right="power = (_portable_power if portable else _power)(windows * bell)",
        wrong="power = _power(windows * bell)",
        tests="tests/speech/test_spectrogram.py",
        caught_by=("tests/speech/test_spectrogram.py::test_portable_features_need_no_transform_of_numpy",),
    ),
    Mistake(
        name="symmetric-window",
        what="The window of the spectrogram is symmetric, and not periodic.",
        file="engine/speech/spectrogram.py",
        right="bell = 0.5 - 0.5 * cos_sin(2 * np.pi * np.arange(_WINDOW) / _WINDOW)[0]",
        wrong="bell = 0.5 - 0.5 * cos_sin(2 * np.pi * np.arange(_WINDOW) / (_WINDOW - 1))[0]",
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
        right="return cuts, frames if ends_in_time else max(TOKEN_FRAMES, cuts[-1].end)",
        wrong="return cuts, frames",
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
        right="np.where((down < diagonal) & (down < along), 1, 2))",
        wrong="np.where((down < diagonal) & (down <= along), 1, 2))",
        tests="tests/speech/test_alignment.py",
        caught_by=("tests/speech/test_alignment.py::test_of_two_ways_with_equal_sums_the_path_comes_along_its_row",),
    ),
)
