"""Texts of wav2vec 2.0 and HuBERT against the pipeline of transformers, and what a model of letters refuses."""

import json
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from engine import Engine, Transcriber, UnsupportedError, WeightsError, load, load_model
from engine.base.errors import InputError, TimedOut
from engine.base.stop import NEVER
from engine.cli.main import main
from engine.weights.model import Model

from ..tools.paths import ENCODERS
from ..tools.running import COMPILED
from ..tools.sound_files import wav
from ..tools.speech import recording
from ..tools.threads import together

NAMES = ("wav2vec2_base", "wav2vec2_large", "hubert_ctc")
SECONDS = (0.1, 3, 31, 0.5)


@pytest.fixture(scope="module")
def transcriber():
    return Transcriber.load(ENCODERS / "wav2vec2_base")


@pytest.fixture(scope="module")
def sounds():
    return [recording(seconds, i) for i, seconds in enumerate(SECONDS)]


def outputs(transcriber, sounds):
    """Return the text of each recording, with the times of its words."""
    return [(one.text, [word for segment in one.segments for word in segment.words])
            for one in transcriber.transcribe(sounds, timestamps="word")]


@pytest.mark.parametrize("name", NAMES)
def test_texts_and_times_of_the_pipeline(name):
    transcriber = Transcriber.load(ENCODERS / name)
    expected = json.loads((ENCODERS / name / "transcripts.json").read_text(encoding="utf-8"))
    given = [recording(one["seconds"], one["seed"]) for one in expected]
    found = transcriber.transcribe(given, timestamps="word")
    assert [one.text for one in found] == [one["text"] for one in expected]
    assert transcriber.transcribe(given[:4]) == [one.text for one in found[:4]]
    for transcript, one in zip(found, expected, strict=True):
        words = [word for segment in transcript.segments for word in segment.words]
        assert [(word.start, word.end) for word in words] == [
            (start * 320 / 16000, end * 320 / 16000) for start, end in zip(one["starts"], one["ends"], strict=True)]
        assert [word.text for word in words] == one["text"].split()
        assert "".join(segment.text for segment in transcript.segments) == one["text"]


@pytest.mark.parametrize(("precision", "backend", "threads"), [
    ("float32", "cython", (1, 3, 4)), ("bfloat16", "cython", (1, 3, 4)), ("int8", "cython", (1, 3, 4)),
    ("float32", "numba", (1,))])
def test_alone_in_company_and_with_any_threads(precision, backend, threads, sounds, tmp_path):
    if backend not in COMPILED:
        pytest.skip(f"{backend} does not run here")
    model = ENCODERS / "wav2vec2_base"
    together = outputs(Transcriber.load(model, backend=backend, precision=precision, threads=2), sounds)
    assert len({text for text, _ in together}) == len(sounds)
    for number in threads:
        alone = Transcriber.load(model, backend=backend, precision=precision, threads=number)
        assert [outputs(alone, [sound])[0] for sound in sounds] == together
    alone.save(tmp_path / "m.npz")
    assert outputs(Transcriber.load(tmp_path / "m.npz", backend=backend, precision=precision), sounds) == together


def test_calls_of_threads_share_batches_and_change_nothing(transcriber, sounds):
    expected = outputs(transcriber, sounds)
    windows = [sound[: 9000 + 4000 * i] for i, sound in enumerate(sounds)]
    work, other = (transcriber.transcription.model.work(windows[start::2]) for start in (0, 1))
    job = work.job
    assert job == other.job     # so that the queue computes both together
    rows = job([(work, work.order), (other, other.order)], NEVER)
    alone = [job([(one, [number])], NEVER)[0] for one in (work, other) for number in one.order]
    assert [row.tolist() for row in rows] == [row.tolist() for row in alone]
    found = together([partial(outputs, transcriber, [sound]) for sound in sounds])
    assert [one for [one] in found] == expected


def test_load_finds_the_class(tmp_path):
    folder = ENCODERS / "hubert_ctc"
    transcriber = load(folder)
    assert isinstance(transcriber, Transcriber)
    assert transcriber.languages == []
    assert isinstance(load(folder, kind="encode"), Engine)
    model = load_model(folder)
    assert model.kind == "transcribe"
    transcriber.save(tmp_path / "m.npz")
    again = load_model(tmp_path / "m.npz")
    assert again.encoder.heads[0].config == model.encoder.heads[0].config
    assert again.encoder.stem.document() == model.encoder.stem.document()
    assert isinstance(load(tmp_path / "m.npz"), Transcriber)


def test_arguments_that_only_whisper_has(transcriber, refusals):
    sound = np.zeros(4000, np.float32)
    refusals(lambda method, arguments: getattr(transcriber, method)(sound, **arguments), [
        ("transcribe", {"language": "de"}), ("transcribe", {"task": "translate"}), ("transcribe", {"task": "write"}),
        ("transcribe", {"num_beams": 2}), ("transcribe", {"word_times": True}), ("detect_language", {}),
    ])
    refusals(lambda options: Transcriber.load(ENCODERS / "wav2vec2_base", **options), [
        ({"cache": "int8"},), ({"max_rows": 3},), ({"max_batch_tokens": 1498},)])


def test_what_a_model_of_letters_lacks(transcriber):
    with pytest.raises(UnsupportedError, match="writes letters, and has no tokenizer"):
        _ = transcriber.tokenizer
    with pytest.raises(UnsupportedError, match="wav2vec2 models write letters and generate no tokens"):
        _ = transcriber.prepared
    with pytest.raises(UnsupportedError, match="writes what recordings say; a Transcriber runs it"):
        Engine(load_model(ENCODERS / "wav2vec2_base"))
    model = load_model(ENCODERS / "wav2vec2_base").encoder
    head = replace(model.heads[0], config=replace(model.heads[0].config, spelling=None))
    with pytest.raises(WeightsError, match="one plain map and a spelling"):
        Transcriber(Model(encoder=replace(model, heads=(head,))))
    stem = replace(model.stem, strides=(5, 2, 2, 2, 2, 2, 2000))
    with pytest.raises(UnsupportedError, match=r"stands for 20 s, and windows need tokens of at most 5 s"):
        Transcriber(Model(encoder=replace(model, stem=stem)))


def test_recordings_before_a_wrong_one_are_not_lost(transcriber, tmp_path):
    good, short = recording(0.5), np.zeros(399, np.float32)
    results = transcriber.transcriptions([good, good, short, good])
    assert next(results) == next(results) != ""
    with pytest.raises(InputError, match="recording 2: it has 399 samples at 16 kHz, and the model reads at least 400"):
        next(results)
    with pytest.raises(InputError, match="recording 1: samples must be finite floats"):
        transcriber.transcribe([good, np.full(4000, np.nan, np.float32)])
    assert isinstance(transcriber.transcribe(np.zeros(48000, np.float32)), str)      # silence
    assert transcriber.transcribe([]) == []
    with pytest.raises(TimedOut):
        transcriber.transcribe(recording(40), timeout=1e-9)


def test_scores_that_are_not_finite():
    model = load_model(ENCODERS / "wav2vec2_base").encoder
    [head] = model.heads
    weights = {name: np.full_like(array, 3e38) for name, array in head.weights.items()}
    transcriber = Transcriber(Model(encoder=replace(model, heads=(replace(head, weights=weights),))))
    with pytest.raises(WeightsError, match="recording 0: the model gives scores that are no finite numbers"):
        transcriber.transcribe(recording(0.1))


def test_files(transcriber, tmp_path, capsys):
    pytest.importorskip("soundfile")
    sound = recording(31)
    (tmp_path / "a.wav").write_bytes(wav((sound * 32767).clip(-32767, 32767).astype("<i2").tobytes()))
    (tmp_path / "short.wav").write_bytes(wav(bytes(200)))
    text = transcriber.transcribe(tmp_path / "a.wav")
    folder, files = str(ENCODERS / "wav2vec2_base"), [str(tmp_path / name) for name in ("a.wav", "short.wav")]
    assert main(["transcribe", folder, *files]) == 1
    printed = capsys.readouterr()
    assert printed.out == f"{text}\n"
    assert "short.wav: it has 100 samples" in printed.err
    assert main(["transcribe", folder, files[0], "--words", "--json"]) == 0
    [line] = capsys.readouterr().out.splitlines()
    assert [word["text"] for segment in json.loads(line)["segments"] for word in segment["words"]] == text.split()
