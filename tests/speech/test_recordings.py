"""Recordings of any length: windows, segments with times, silence and languages, against a slow definition of each."""

import json
from dataclasses import replace

import numpy as np
import pytest

from engine import InputError, TimedOut, UnsupportedError, save
from engine.backends.steps import Row
from engine.cli.main import main
from engine.generation.results import Generated
from engine.interface.transcriber import Transcriber
from engine.speech.segments import Cut, Segment, cut
from engine.speech.spectrogram import Spectrogram
from engine.speech.subtitles import clock, stamp
from engine.speech.windows import Recording, is_silent

from ..tools.golden_generating import Exact
from ..tools.paths import SPEECH as GOLDEN_SPEECH
from ..tools.sound_files import wav
from ..tools.speech import SHORT, TIMES, features_at_once, joined_recordings, model_of, recording, timed
from ..tools.whisper import FOLDER, MISSING, SILENT, SPEECH

pytest.importorskip("tokenizers")
pytest.importorskip("soundfile")
GOLDEN = GOLDEN_SPEECH / "transcripts.json"


def allowed(token: int, ids: list[int], end: int, first_time: int) -> bool:
    """Return whether a token may come behind these, by rules 1 to 4 of timestamps.py, with at most 1 s at first."""
    if token == first_time - 1:
        return False
    times = [number for number in ids if number >= first_time]
    if not ids:
        return first_time <= token <= first_time + 50
    after_time, before_time = ids[-1] >= first_time, len(ids) < 2 or ids[-2] >= first_time
    if token >= first_time:
        later = token > times[-1] or (after_time and token == times[-1])
        return later and not (after_time and before_time)
    return not after_time or before_time or token >= end


def written(exact: Exact, window: np.ndarray, prompt: list[int], new: int) -> list[int]:
    """Return what greedy search writes of a window, in float64."""
    [end], first_time = exact.model.generation.eos_token_id, exact.decoder.vocab_size - TIMES
    ids: list[int] = []
    request = exact.opened(window)
    while len(ids) < new:
        scores = exact.decoder.step_unrounded([Row(request, None, np.array([*prompt, *ids]))])[1][-1]
        scores[[not allowed(token, ids, end, first_time) for token in range(len(scores))]] = -np.inf
        if np.logaddexp.reduce(scores[first_time:]) > scores[:first_time].max():
            scores[:first_time] = -np.inf
        if scores.argmax() == end:
            break
        ids.append(int(scores.argmax()))
    return ids


def slowly(model, samples: np.ndarray, prompt: list[int], new: int) -> list[tuple[float, float, list[int]]]:
    """Return the segments of a recording: start, end and ids of the text."""
    exact, first_time = Exact(model), model.decoder.config.vocab_size - TIMES
    features, seek, found = features_at_once(samples, 7), 0, []
    while seek < features.shape[1]:
        part = features[:, seek : seek + 3000]
        ids = written(exact, np.pad(part, ((0, 0), (0, 3000 - part.shape[1]))), prompt, new)
        step, parts, own = part.shape[1], [], []
        for i, token in enumerate(ids):
            own.append(token)
            if token >= first_time and len(own) > 1 and (i + 1 == len(ids) or ids[i + 1] >= first_time):
                parts.append(own)
                own = []
        if own and parts:      # text behind the last pair is read again
            step = 2 * (parts[-1][-1] - first_time)
        assert parts, "this model writes pairs"
        found += [((seek + 2 * (part[0] - first_time)) / 100, (seek + 2 * (part[-1] - first_time)) / 100,
                   [token for token in part if token < first_time]) for part in parts]  # fmt: skip
        seek += step
    return found


@pytest.mark.parametrize("new", [8, 9])
def test_windows_and_segments_by_a_slow_definition(new):
    """With 8 tokens the model is cut off in a segment, and the next window reads it again; with 9 it is not."""
    model = timed()
    samples = recording(65)
    expected = slowly(model, samples, [41], new)
    [found] = Transcriber(model, backend="reference").transcribe([samples], timestamps=True, max_new_tokens=new)
    assert [(s.start, s.end, s.text) for s in found.segments] == [
        (start, end, "".join(f" w{i}" for i in ids)) for start, end, ids in expected if end > start]
    assert found.text == "".join(segment.text for segment in found.segments)
    assert found.language == "en"
    assert found.segments[-1].end > 30


@pytest.mark.parametrize("backend", ["cython", "numba"])
def test_a_batch_gives_what_each_recording_gives_alone(backend):
    if backend == "numba":
        pytest.importorskip("numba")
    transcriber = Transcriber(timed(), backend=backend, max_rows=3)
    several = [recording(65), recording(2, 1), recording(0.005), recording(33, 2), recording(3, 3)]
    found = transcriber.transcribe(several, timestamps=True)
    assert found == [transcriber.transcribe([samples], timestamps=True)[0] for samples in several]
    assert found[2].segments == []
    assert len({transcript.text for transcript in found}) > 2
    beams = transcriber.transcribe(several, num_beams=2)
    assert beams == [transcriber.transcribe([samples], num_beams=2)[0] for samples in several]


def test_little_memory_changes_no_result(monkeypatch):
    transcriber = Transcriber(timed(), backend="cython")
    several = [recording(31), recording(2, 1), recording(3, 2)]
    expected, short = transcriber.transcribe(several, timestamps=True), transcriber.transcribe(several)
    sizes = []
    monkeypatch.setattr("engine.speech.transcription.CROSS_CACHE_BYTES", 1)
    inner = transcriber.transcription
    vectors, held = inner._vectors, lambda: len(transcriber._model.decoder._sources)
    monkeypatch.setattr(inner, "_vectors", lambda *args: sizes.append(held()) or vectors(*args))
    assert transcriber.transcribe(several, timestamps=True) == expected
    assert transcriber.transcribe(several) == short
    assert set(sizes) == {0}


def test_a_long_recording_without_timestamps_has_the_text_of_its_segments():
    transcriber = Transcriber(timed(), backend="reference")
    long, short = recording(35), recording(3)
    [with_times] = transcriber.transcribe([long], timestamps=True)
    texts = transcriber.transcribe([short, long, short])
    assert texts[1] == with_times.text
    assert texts[0] == texts[2] == transcriber.transcribe([short])[0]
    with pytest.raises(InputError, match="needs recordings of up to 30 s"):
        transcriber.transcribe([long], num_beams=2, num_return_sequences=2)
    with pytest.raises(InputError, match="needs recordings of up to 30 s"):
        transcriber.transcribe([short], num_beams=2, num_return_sequences=2, timestamps=True)


def test_the_language_is_that_of_the_first_window():
    model = timed(several=True)
    transcriber, exact = Transcriber(model, backend="reference"), Exact(model)
    ids = transcriber.transcription.tokens.languages
    start = transcriber.transcription.tokens.start
    samples = [recording(seconds, seed) for seed, seconds in enumerate((2, 3, 4, 5, 31))]
    expected = []
    for sound in samples:
        features = features_at_once(sound, 7)[:, :3000]
        window = np.pad(features, ((0, 0), (0, 3000 - features.shape[1])))
        logits = exact.logits(window, np.array([start]))[-1][list(ids.values())]
        expected.append(("en", "de")[int(logits.argmax())])
    found = transcriber.transcribe(samples, timestamps=True)
    assert [transcript.language for transcript in found] == expected
    given = transcriber.transcribe(samples[:1], timestamps=True, language="de", task="translate")
    assert given[0].language == "de"


def test_the_language_of_short_sounds():
    model = timed(several=True)
    transcriber, exact = Transcriber(model, backend="reference"), Exact(model)
    samples = [recording(seconds, seed) for seed, seconds in enumerate((2, 3, 31))]
    start = transcriber.transcription.tokens.start
    names = transcriber.transcription.tokens.languages
    found = transcriber.detect_language(samples)
    for (name, probability), sound in zip(found, samples, strict=True):
        features = features_at_once(sound, 7)[:, :3000]
        window = np.pad(features, ((0, 0), (0, 3000 - features.shape[1])))
        logits = exact.logits(window, np.array([start]))[-1][list(names.values())]
        p = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
        assert name == ("en", "de")[int(p.argmax())]
        assert probability == pytest.approx(p.max(), abs=1e-5)
    texts = transcriber.transcribe(samples[:2])
    assert texts == [transcriber.transcribe([sound], language=name)[0]
                     for sound, (name, _) in zip(samples[:2], found[:2], strict=True)]
    with pytest.raises(UnsupportedError, match="English alone"):
        Transcriber(timed(), backend="reference").detect_language(samples)


def test_requests_are_closed_whatever_happens():
    transcriber = Transcriber(timed(), backend="cython")
    decoder = transcriber._model.decoder
    transcriber.transcribe([recording(31), recording(2)], timestamps=True)
    with pytest.raises(TimedOut):
        transcriber.transcribe([recording(31), recording(2)], timestamps=True, timeout=1e-6)
    with pytest.raises(InputError):
        transcriber.transcribe([recording(2)] * 2, suppress_tokens=[10**6], timestamps=True)
    assert decoder.statistics().cache_tokens == 0
    assert not decoder._sources


@pytest.mark.parametrize(("ids", "cuts", "step"), [
    ([100, 1, 150, 150, 2, 200], [Cut(0, 100, [1]), Cut(100, 200, [2])], 777),
    ([100, 1, 150, 150, 2], [Cut(0, 100, [1])], 100), ([110, 1, 150, 160, 2, 170, 180], [
        Cut(20, 100, [1]), Cut(120, 140, [2])], 140),
    ([100, 1, 2], [Cut(0, 777, [1, 2])], 777), ([105, 1, 2, 130], [Cut(0, 60, [1, 2])], 777),
    ([100], [Cut(0, 777, [])], 777), ([], [Cut(0, 777, [])], 777), ([100, 1, 100], [Cut(0, 777, [1])], 777),
])  # fmt: skip
def test_cuts(ids, cuts, step):
    assert cut(ids, 100, 777) == (cuts, step)


def test_silence_and_empty_segments():
    def words(ids):
        return " ".join(map(str, ids))

    sound = Recording(0, Spectrogram(recording(35), 2), "en")
    result = Generated([100, 1, 150, 150, 151, 151, 7, 200, 200], -1.0, "stop")
    assert sound.window().shape == (2, 3000)
    assert sound.take(result, True, 100, words) == []
    assert (sound.seek, sound.left, sound.segments) == (3000, 500, [])
    assert sound.window()[:, 500:].sum() == 0
    assert sound.window()[:, :500].all()
    sound.take(result, False, 100, words)
    assert sound.segments == [Segment(30.0, 31.0, "1"), Segment(31.02, 32.0, "7")]
    assert sound.seek == 3200

    assert is_silent(0.61, Generated([1] * 9, -1.01, "stop"), 1.0)
    assert not is_silent(0.59, Generated([1] * 9, -1.01, "stop"), 1.0)
    assert not is_silent(0.61, Generated([1] * 9, -0.99, "stop"), 1.0)
    assert is_silent(0.61, Generated([1] * 9, -10.1, "stop"), 0.0)
    assert not is_silent(0.61, Generated([1] * 9, -9.9, "stop"), 0.0)


def test_a_model_hears_no_speech(monkeypatch):
    transcriber = Transcriber(timed(), backend="reference")
    assert transcriber.transcribe([recording(3)])[0]
    assert 0 < transcriber.transcription._no_speech(np.zeros(transcriber.config.vocab_size)) < 0.01
    monkeypatch.setattr("engine.speech.transcription.is_silent", lambda no_speech, result, penalty: 0 < no_speech < 1)
    [found] = transcriber.transcribe([recording(65)], timestamps=True)
    assert found.segments == []
    assert found.text == ""


def test_the_command_line(tmp_path, capsys):
    model = timed()
    samples = (recording(63) * 2**15).clip(-(2**15), 2**15 - 1).astype("<i2")
    (tmp_path / "a.wav").write_bytes(wav(samples.tobytes()))
    save(model, tmp_path / "m.npz")
    path, options = str(tmp_path / "a.wav"), ["--backend", "reference", "--timestamps"]
    assert main(["transcribe", str(tmp_path / "m.npz"), path, *options]) == 0
    [found] = Transcriber(model, backend="reference").transcribe([path], timestamps=True)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(found.segments)
    for line, segment in zip(lines, found.segments, strict=True):
        (start, end), text = line[1:].split("]")[0].split(" - "), line.split("] ")[1]
        times = [60 * int(time.split(":")[0]) + float(time.split(":")[1]) for time in (start, end)]
        assert times == pytest.approx([segment.start, segment.end])
        assert text == segment.text.strip()
    assert [clock(seconds) for seconds in (0, 9.5, 59.994, 59.996, 3661)] == [
        "0:00.00", "0:09.50", "0:59.99", "1:00.00", "61:01.00"]
    assert [stamp(seconds, ",") for seconds in (0, 59.9996, 3661.5)] == ["00:00:00,000", "00:01:00,000", "01:01:01,500"]
    assert main(["transcribe", str(tmp_path / "m.npz"), path, path, *options]) == 0
    assert capsys.readouterr().out.splitlines() == [f"{path}:", *lines] * 2
    (tmp_path / "b.wav").write_text("no recording")
    assert main(["transcribe", str(tmp_path / "m.npz"), path, str(tmp_path / "b.wav"), *options]) == 1
    assert capsys.readouterr().out.splitlines() == [f"{path}:", *lines], "what was done before the error is written"
    heads = [(0, 1), (1, 0)]
    save(replace(model, generation=model.generation.changed(alignment_heads=heads)), tmp_path / "w.npz")
    assert main(["transcribe", str(tmp_path / "w.npz"), path, "--backend", "reference", "--words"]) == 0
    words = capsys.readouterr().out.splitlines()
    assert [line.split("] ")[1] for line in words] == found.text.split()


def test_progress(capfd):
    pytest.importorskip("tqdm")
    Transcriber(timed(), backend="reference").transcribe([recording(33), recording(2)], show_progress_bar=True)
    assert "35/35" in capfd.readouterr().err


def test_a_model_without_times():
    with pytest.raises(UnsupportedError, match="none for the times from 0 to 30 s"):
        Transcriber(model_of(), backend="reference").transcribe([recording(31)])


@pytest.mark.skipif(not FOLDER.exists(), reason=MISSING)
@pytest.mark.skipif(not SPEECH.exists(), reason=SILENT)
def test_the_segments_of_faster_whisper():
    """tests/golden/make/transcripts.py wrote the file."""
    expected, sounds = json.loads(GOLDEN.read_text(encoding="utf-8")), joined_recordings()
    found = Transcriber.load(FOLDER).transcribe([*sounds.values()], timestamps=True)
    for name, transcript in zip(sounds, found, strict=True):
        segments = [[round(s.start, 2), round(s.end, 2), s.text] for s in transcript.segments]
        assert segments == expected[name], name


@pytest.mark.skipif(not FOLDER.exists(), reason=MISSING)
@pytest.mark.skipif(not SPEECH.exists(), reason=SILENT)
def test_the_words_of_faster_whisper():
    expected, sounds = json.loads(GOLDEN.read_text(encoding="utf-8"))["words"], joined_recordings()
    found = Transcriber.load(FOLDER).transcribe([sounds[name] for name in SHORT], timestamps="word")
    for name, transcript in zip(SHORT, found, strict=True):
        words = [word for segment in transcript.segments for word in segment.words]
        assert [[round(w.start, 2), round(w.end, 2), w.text] for w in words] == expected[name], name
        assert transcript.text == "".join(word.text for word in words)


def test_no_recording_waits_for_the_window_of_another_one(monkeypatch):
    """The second window of a recording is read while the first window of another one still has steps to go."""
    transcriber = Transcriber(timed(), backend="cython", threads=1)
    inner, decoder = transcriber.transcription, transcriber._model.decoder
    work, step, steps = inner._work, decoder.step, []

    long = []       # the first window that asks for a text

    def lengthened(window, number, language, order, config, *, timestamps):
        long.append(window)
        config = config.changed(max_new_tokens=40 if window is long[0] else 3)
        return work(window, number, language, order, config, timestamps=timestamps)

    def seen(rows, *args):
        steps.append({row.request for row in rows})
        return step(rows, *args)

    monkeypatch.setattr(inner, "_work", lengthened)
    monkeypatch.setattr(decoder, "step", seen)
    transcriber.transcribe([recording(31), recording(65, 1), recording(45, 2)], timestamps=True)
    first = min(request for step in steps for request in step)
    assert max(request for step in steps if first in step for request in step) >= first + 4
