"""Text from speech: Whisper tiny.en on real recordings, and tiny random models for the rest."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine import Model, load_model, save
from engine.base.errors import EngineError, InputError, TimedOut, UnsupportedError, WeightsError
from engine.cli.main import main
from engine.interface.transcriber import Transcriber
from engine.speech.audio_files import read_audio, recording_samples
from engine.speech.spectrogram import log_mel

from ..tools.golden_generating import GOLDEN, Exact
from ..tools.sound_files import encoded, wav
from ..tools.speech import SPECIAL, model_of, recording, sounds, timed
from ..tools.whisper import FOLDER, MISSING, SILENT, SPEECH

pytest.importorskip("tokenizers")
pytest.importorskip("soundfile")

@pytest.fixture(scope="module")
def transcriber():
    model = model_of()
    # The convolutions of the golden model read 7 channels; log_mel makes as many.
    return Transcriber(model, backend="reference")


def test_the_tokens_of_a_pass_in_float64(transcriber):
    model = model_of()
    exact = Exact(model)
    [sound] = sounds(1)
    features = log_mel(sound, 7)
    prompt, tokens = [1, 6], []
    for _ in range(9):
        tokens.append(int(exact.logits(features, np.array([*prompt, *tokens]))[-1].argmax()))
    tokens = tokens[: tokens.index(0)] if 0 in tokens else tokens
    words = [*SPECIAL, *(f" w{i}" for i in range(61 - len(SPECIAL)))]
    assert transcriber.transcribe([sound]) == ["".join(words[i] for i in tokens if i >= len(SPECIAL))]


def test_a_batch_gives_what_each_sound_gives_alone(transcriber):
    alone = [transcriber.transcribe([sound])[0] for sound in sounds()]
    assert transcriber.transcribe(sounds()) == alone
    assert transcriber.transcribe([]) == []


def test_the_old_name_of_audio_is_accepted_with_a_warning(transcriber):
    with pytest.warns(FutureWarning, match="sounds is now called audio"):
        assert transcriber.transcribe(sounds=sounds(1)) == transcriber.transcribe(audio=sounds(1))
    with pytest.warns(FutureWarning), pytest.raises(EngineError, match="knows English alone"):
        transcriber.detect_language(sounds=sounds(1))
    # Of `load` alone it is an old name; other libraries mean the new tokens by it.
    assert transcriber.transcribe(sounds(1), max_tokens=3) == transcriber.transcribe(sounds(1), max_new_tokens=3)


def written(path: Path) -> np.ndarray:
    """Write a sound to a file, and return its samples."""
    samples = (sounds(1)[0] * 2**15).astype("<i2")
    path.write_bytes(wav(samples.tobytes()))
    return samples


def test_files_and_samples(transcriber, tmp_path):
    samples = written(tmp_path / "a.wav")
    expected = transcriber.transcribe([(samples / 2**15).astype(np.float32)])
    assert transcriber.transcribe([tmp_path / "a.wav"]) == transcriber.transcribe([str(tmp_path / "a.wav")]) == expected


@pytest.mark.parametrize("timestamps", [False, True])
def test_a_recording_with_nan_is_named(timestamps, monkeypatch):
    model = Transcriber(timed(), backend="reference")
    step = model._model.decoder.step
    seen: dict[int, int] = {}

    def damaged(rows, *args):
        scores = step(rows, *args)
        for row in rows:
            seen.setdefault(row.request, len(seen))
        return replace(scores, finite=np.array([seen[row.request] != 1 for row in rows]))

    monkeypatch.setattr(model._model.decoder, "step", damaged)
    with pytest.raises(WeightsError, match=r"^recording 1: the model computed logits that are NaN"):
        model.transcribe(sounds(3), timestamps=timestamps)


def test_an_error_that_is_kept_keeps_no_recording_open(transcriber, monkeypatch):
    def stop(*_):
        raise TimedOut

    monkeypatch.setattr(transcriber._model.decoder, "cache_sources", stop)
    with pytest.raises(TimedOut) as kept:
        transcriber.transcribe(sounds(1))
    assert transcriber._model.queue.counts == (0, 0)
    assert transcriber._model.decoder.statistics().cache_tokens == 0
    assert not transcriber._model.decoder._forest.requests
    assert kept.value


def test_the_command_line(transcriber, tmp_path, capsys):
    written(tmp_path / "a.wav")
    save(model_of(), tmp_path / "m.npz")
    options = ["--backend", "reference", "--num-beams", "2"]
    assert main(["transcribe", str(tmp_path / "m.npz"), *[str(tmp_path / "a.wav")] * 2, *options]) == 0
    [text] = transcriber.transcribe([tmp_path / "a.wav"], num_beams=2)
    assert capsys.readouterr().out == f"{text.strip()}\n" * 2
    assert main(["transcribe", str(tmp_path / "m.npz"), str(tmp_path / "none.wav"), *options]) != 0
    assert "none.wav: cannot be read" in capsys.readouterr().err


def test_the_formats_of_the_command_line(tmp_path, capsys, monkeypatch):
    samples = (recording(40) * 2**15).clip(-(2**15), 2**15 - 1).astype(np.int16)
    (tmp_path / "a.flac").write_bytes(encoded(samples, "FLAC", "PCM_16"))
    save(timed(), tmp_path / "m.npz")
    call, path = ["transcribe", str(tmp_path / "m.npz")], str(tmp_path / "a.flac")
    [expected] = Transcriber(timed(), backend="reference").transcribe([path], timestamps=True)

    def run(*arguments):
        assert main([*call, *arguments, "--backend", "reference"]) == 0
        return capsys.readouterr().out

    found = json.loads(run(path, "--json", "--language", "English"))
    assert found == {"file": path, "language": "en", "text": expected.text.strip(), "segments": [
        {"start": each.start, "end": each.end, "text": each.text} for each in expected.segments]}
    srt, vtt = run(path, "--srt").split("\n"), run(path, "--vtt").split("\n")
    assert vtt[:2] == ["WEBVTT", ""]
    assert srt[1::4] == [line.replace(".", ",") for line in vtt[2::3]][: len(srt[1::4])]
    assert srt[2::4] == vtt[3::3] == [segment.text.strip() for segment in expected.segments]
    assert srt[1].startswith("00:00:0")
    for options in (["--srt", "-o", str(tmp_path / "a.txt")], ["-o", str(tmp_path / "a.srt")]):
        assert run(path, *options) == ""
        assert Path(options[-1]).read_text() == "\n".join(srt)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO((tmp_path / "a.flac").read_bytes())))
    assert run("-") == f"{expected.text.strip()}\n"
    for arguments, words in (([path, path, "--srt"], "one recording"), (["-", "-"], "give - once")):
        assert main([*call, *arguments]) == 1
        assert words in capsys.readouterr().err


def test_several_results(transcriber):
    [results] = transcriber.transcribe(sounds(1), num_beams=3, num_return_sequences=2)
    assert len(results) == 2
    assert len(set(results)) == 2


def test_languages():
    several = Transcriber(model_of(words=51865), backend="reference")
    assert several.languages == ["en", "de"]
    assert several.transcription.tokens.prompt("de", "transcribe", times=False) == [1, 3, 4, 6]
    assert several.transcription.tokens.prompt("en", "translate", times=True) == [1, 2, 5]
    german = several.transcribe(sounds(1), language="de")
    for name in ("DE", "german", "German", "<|de|>"):
        assert several.transcribe(sounds(1), language=name) == german
    with pytest.raises(InputError, match="knows the languages en, de, not 'fr'"):
        several.transcribe(sounds(1), language="fr")


@pytest.mark.parametrize(("given", "options", "words"), [
    ("none.wav", {}, "none.wav: cannot be read"), (3, {}, "audio must be a path, .* or a list of them, not 3"),
    (b"RIFF", {}, "first bytes"), (io.BytesIO(), {}, "first bytes"), (np.int16([3]), {}, "int16"), ([3], {}, "floats"),
    ([(np.zeros(16000), 44100)], {}, "without its rate"), ([[1.0, [2.0]]], {}, "in one axis, not"),
    ([np.float64([1e300])], {}, "beyond 2.31"), ([np.zeros(16001)], {"max_seconds": 1}, "more than 1 s"),
    ([np.zeros(480001)], {}, "none for the times from 0 to 30 s"), ([], {"task": "x"}, "task must be one of"),
    ([], {"language": "de"}, "knows English alone"), ([], {"task": "translate"}, "knows English alone"),
    ([Path("none.wav")], {}, "none.wav: cannot be read"), ([], {"beams": 3}, "no argument beams"),
    (sounds(1), {"timestamps": True}, "none for the times"), ([], {"timestamps": 3}, 'True, False or "word"'),
    ([], {"show_progress_bar": 3}, "must be True or False"), ([], {"timeout": -1}, "timeout must be"),
])  # fmt: skip
def test_bad_arguments(transcriber, given, options, words):
    with pytest.raises(EngineError, match=words):
        transcriber.transcribe(given, **options)


def test_models_that_do_not_read_sound():
    with pytest.raises(UnsupportedError, match="family bart does not read audio"):
        Transcriber(load_model(GOLDEN / "bart", kind="generate"), backend="reference")
    with pytest.raises(UnsupportedError, match=r"lacks <\|notimestamps\|>"):
        Transcriber(model_of(SPECIAL[:-1]), backend="reference")
    with pytest.raises(UnsupportedError, match=r"lacks <\|startoftranscript\|>"):
        Transcriber(load_model(GOLDEN / "whisper", kind="generate"), backend="reference")


def with_tokens(model: Model, change) -> Model:
    """Return a model whose added tokens a function changed."""
    value = json.loads(model.decoder.text.tokenizer_json)
    change(value["added_tokens"])
    text = replace(model.decoder.text, tokenizer_json=json.dumps(value).encode())
    return Model(decoder=replace(model.decoder, text=text), encoder=replace(model.encoder, text=text),
                 generation=model.generation)


def test_damaged_special_tokens_are_found_at_load():
    def put(name, **values):
        return lambda tokens: next(token for token in tokens if token["content"] == name).update(values)

    several = model_of([*SPECIAL, "<|nospeech|>"], 51865)
    for change, words in ((put("<|nospeech|>", id=10**6), "gives <.nospeech.> the id 1000000, and the model has"),
                          (put("<|de|>", id=51865), "gives <.de.> the id 51865"),
                          (put("<|en|>", id=-1), "an id below 2.31"), (put("<|de|>", content=5), "a content, a text"),
                          (put("<|translate|>", content="x"), "lacks <.translate.>")):
        with pytest.raises(EngineError, match=words):
            Transcriber(with_tokens(several, change), backend="reference")


def test_a_silent_recording_has_the_empty_text_with_timestamps_and_without(monkeypatch):
    transcriber = Transcriber(timed(), backend="reference")
    [text] = transcriber.transcribe(sounds(1))
    assert text
    assert transcriber.transcribe([np.zeros(0), np.zeros(159)]) == ["", ""]
    several = transcriber.transcribe([np.zeros(0)], num_beams=2, num_return_sequences=2)
    assert several == [["", ""]]
    monkeypatch.setattr(transcriber.transcription, "_no_speech", lambda logits: 0.7)
    results = []
    monkeypatch.setattr("engine.speech.transcription.is_silent",
                        lambda no_speech, result, penalty: results.append(result) or len(results) > 2)
    assert transcriber.transcribe(sounds(2)) == ["", ""]    # by what the model writes with timestamps
    assert len(results) == 4
    assert [result.ids[0] > transcriber.transcription.tokens.no_times for result in results[2:]] == [True, True]
    assert [found.text for found in transcriber.transcribe(sounds(2), timestamps=True)] == ["", ""]
    monkeypatch.setattr("engine.speech.transcription.is_silent", lambda *_: False)
    assert transcriber.transcribe(sounds(1)) == [text]


def test_recordings_are_read_when_their_turn_comes(transcriber, tmp_path, monkeypatch):
    written(tmp_path / "a.wav")
    reads, held = [], []
    monkeypatch.setattr("engine.speech.transcription.recording_samples",
                        lambda item, *args: reads.append(item) or recording_samples(item, *args))
    monkeypatch.setattr("engine.speech.transcription.HELD_SAMPLES", 12000)
    inner = transcriber.transcription
    short = inner._texts_of_short
    monkeypatch.setattr(inner, "_texts_of_short", lambda batch, order: held.append(len(reads)) or short(batch, order))
    found = transcriber.transcribe([tmp_path / "a.wav"] * 7)
    assert len(set(found)) == 1
    assert held == [3, 6, 7]
    with pytest.raises(WeightsError, match=r"none\.wav: cannot be read"):
        transcriber.transcribe([tmp_path / "a.wav", tmp_path / "none.wav"])
    assert len(reads) == 7
    with pytest.raises(TimedOut):
        transcriber.transcribe([tmp_path / "a.wav"] * 7, timeout=1e-6)


def clips() -> dict[str, Any]:
    """Return recordings of up to 30 s."""
    slow = read_audio(SPEECH / "two_cities.wav")
    own = {name: read_audio(SPEECH / f"{name}.wav") for name in ("beckett", "clone-test")}
    return own | {"from 0 s": slow[: 30 * 16000], "from 13 s": slow[13 * 16000 : 43 * 16000]}


OF_FASTER_WHISPER = {
    "beckett": " Ever tried, ever failed. No matter, try again. Fail again. Fail better.",
    "clone-test": " I do. I think that America do it very well.",
    "from 0 s": " It was the best of times, it was the worst of times. It was the age of wisdom, it was the age of "
                "foolishness. It was the epoch of belief, it was the epoch of incredulity. It was the season of light, "
                "it was the season of darkness. It was the spring of hope, it was the winter of despair. We had "
                "everything before us, we had nothing before us. We were all going direct to heaven, we were all going "
                "direct the other way.",
    "from 13 s": " It was the season of light, it was the season of darkness. It was the spring of hope, it was the "
                 "winter of despair. We had everything before us, we had nothing before us. We were all going direct "
                 "to heaven, we were all going direct the other way. In short, the period was so far like the present "
                 "period that some of its noisiest authorities insisted on its being received for good or for evil in "
                 "the superlative degree of comparison only.",
}  # fmt: skip
"""The texts of faster-whisper 1.2 with the same model.bin in float32, greedy, without timestamps and past text."""


@pytest.mark.skipif(not FOLDER.exists(), reason=MISSING)
@pytest.mark.skipif(not SPEECH.exists(), reason=SILENT)
def test_the_texts_of_faster_whisper():
    real, recordings = Transcriber.load(FOLDER), clips()
    found = real.transcribe(list(recordings.values()))
    assert dict(zip(recordings, found, strict=True)) == OF_FASTER_WHISPER
    assert real.languages == []


def test_one_recording_gives_one_result(transcriber, tmp_path):
    [sound] = sounds(1)
    expected = transcriber.transcribe([sound])
    assert transcriber.transcribe(sound) == expected[0]
    assert [*transcriber.transcriptions(sound)] == expected
    written(tmp_path / "a.wav")
    [text] = transcriber.transcribe([tmp_path / "a.wav"])
    data = (tmp_path / "a.wav").read_bytes()
    for given in (tmp_path / "a.wav", str(tmp_path / "a.wav"), data, io.BytesIO(data)):
        assert transcriber.transcribe(given) == text


@pytest.mark.parametrize(("several", "stated", "expected"), [
    (True, None, True), (True, False, False), (False, None, False)])
def test_whether_a_model_is_multilingual(several, stated, expected):
    """generation_config.json says it, and the number of tokens where it says nothing."""
    model = timed(several)
    model = replace(model, generation=model.generation.changed(is_multilingual=stated))
    assert bool(Transcriber(model, backend="reference").transcription.tokens.languages) is expected


def test_what_a_model_is_is_no_setting_of_a_call(transcriber):
    with pytest.raises(InputError, match="is_multilingual says what a model is, and is no setting of a call"):
        transcriber.transcribe(sounds(1), is_multilingual=True)
    with pytest.raises(InputError, match="transcribe tells no log probabilities of tokens; leave logprobs out"):
        transcriber.transcribe(sounds(1), logprobs=2)
