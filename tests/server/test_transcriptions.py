"""The routes for speech, on real sockets: each answer is what `Transcriber` gives for its recording alone."""

import json
import re
import shutil
import socket
import threading
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from engine import Transcriber
from engine.base.errors import TimedOut

from ..tools.paths import ENCODERS, ROOT
from ..tools.sound_files import encoded, wav
from ..tools.speech import recording, timed
from ..tools.threads import together, wait_for

pytest.importorskip("uvicorn")
pytest.importorskip("tokenizers")
pytest.importorskip("soundfile")

from engine.server.transcriptions import TABLE
from engine.speech.languages import LANGUAGES
from engine.speech.subtitles import srt_lines, vtt_lines

from ..tools.serving import Client, raw, serving
from .bodies import FORM, TRANSCRIBE, form, sound

LONG, SHORT, SILENT = sound(35), sound(2, 1), sound(0.005)


@pytest.fixture(scope="module")
def model():
    made = timed()
    heads = made.generation.changed(alignment_heads=[[0, 1], [1, 2]])
    return Transcriber(replace(made, generation=heads), threads=1)


@pytest.fixture(scope="module")
def client(model):
    with serving(model) as client:
        yield client


def ask(client, data, path=TRANSCRIBE, headers=None, **fields):
    return client.send("POST", path, form(data, **fields), FORM | (headers or {}))


def lines(found):
    return "".join(f"{line}\n" for line in found)


@pytest.mark.parametrize("data", [LONG, SHORT, SILENT], ids=["long", "short", "silent"])
def test_each_format_has_the_text_of_the_library(client, data):
    transcript, words = (client.model.transcribe(data, timestamps=kind) for kind in (True, "word"))
    text = client.model.transcribe(data)
    found = ask(client, data)
    seconds = len(data[44:]) / 32000
    assert found.data == {"text": text.strip(), "usage": {"type": "duration", "seconds": seconds}}
    assert found.headers["x-engine-seed"] == "0"
    found = ask(client, data, response_format="text", model="other name")
    assert (found.data.decode(), found.headers["content-type"]) == (f"{text.strip()}\n", "text/plain; charset=utf-8")
    assert ask(client, data, response_format="srt").data.decode() == lines(srt_lines(transcript, False))
    assert ask(client, data, response_format="srt", timestamp_granularities=["word"]).data.decode() == lines(
        srt_lines(words, True))
    found = ask(client, data, response_format="vtt")
    assert (found.data.decode(), found.headers["content-type"]) == (
        lines(vtt_lines(transcript, False)), "text/vtt; charset=utf-8")
    found = ask(client, data, "/audio/transcriptions", response_format="verbose_json").data
    assert [(one["start"], one["end"], one["text"]) for one in found["segments"]] == [
        (one.start, one.end, one.text) for one in transcript.segments]
    assert (found["text"], found["duration"]) == (transcript.text.strip(), seconds)
    assert found["language"] == "english"
    assert "words" not in found
    for one in found["segments"]:
        assert (one["avg_logprob"] < 0, 0 < one["no_speech_prob"] < 0.5, one["compression_ratio"] > 0) == (True,) * 3
        assert "".join(f" w{i}" for i in one["tokens"]) == one["text"]
        assert 0 <= one["seek"] <= 100 * one["start"]
    for name in ("timestamp_granularities[]", "timestamp_granularities"):
        found = ask(client, data, **{"response_format": "verbose_json", name: ["word", "segment"]}).data
        assert [(one["start"], one["end"], one["word"]) for one in found["words"]] == [
            (one.start, one.end, one.text.strip()) for segment in words.segments for one in segment.words]
        assert len(found["segments"]) == len(words.segments)
    assert "segments" not in ask(client, data, response_format="verbose_json", timestamp_granularities="word").data


def test_languages_and_translations(client):
    found = ask(client, SHORT, "/v1/audio/translations")
    assert (found.status, "knows English alone" in found.data["error"]["message"]) == (400, True)
    with serving(Transcriber(timed(several=True), threads=1)) as several:
        model = several.model
        heard = {None: model.transcribe(SHORT, timestamps=True).language, "de": "de", "German": "de"}
        for language, code in heard.items():
            given = {} if language is None else {"language": language}
            found = ask(several, SHORT, response_format="verbose_json", **given).data
            expected = model.transcribe(SHORT, language=code, timestamps=True)
            assert (found["text"], found["language"]) == (expected.text.strip(), LANGUAGES[code])
        found = ask(several, SHORT, "/v1/audio/translations", language="de", response_format="verbose_json").data
        expected = model.transcribe(SHORT, language="de", task="translate", timestamps=True)
        assert (found["text"], found["language"], found["task"]) == (expected.text.strip(), "english", "translate")
        found = ask(several, SHORT, language="xx")
        assert (found.status, "knows the languages" in found.data["error"]["message"]) == (400, True)


def events(answer):
    found = [json.loads(line.removeprefix("data: ")) for line in answer.data.decode().split("\n\n") if line]
    assert answer.headers["content-type"] == "text/event-stream"
    return found


def test_the_pieces_of_a_stream_are_the_text(client):
    for data, most in ((LONG, 2), (SHORT, 1), (SILENT, 0)):
        *pieces, last = events(ask(client, data, stream="true"))
        assert {one["type"] for one in pieces} <= {"transcript.text.delta"}
        assert last == {"type": "transcript.text.done", "text": ask(client, data).data["text"]}
        assert "".join(one["delta"] for one in pieces) == last["text"]
        assert len(pieces) == most      # one for each window



def test_samples_have_a_seed(client):
    found = ask(client, LONG, temperature="1")
    seed = found.headers["x-engine-seed"]
    assert ask(client, LONG, temperature="1", seed=seed).data == found.data
    assert found.data["text"] == client.model.transcribe(
        LONG, do_sample=True, temperature=1, top_k=0, seed=int(seed)).strip()
    assert len({ask(client, SHORT, temperature="1").headers["x-engine-seed"] for _ in range(3)}) == 3


def test_other_containers(client):
    samples = recording(2, 1)
    for container, coding in (("FLAC", "PCM_16"), ("OGG", "VORBIS")):
        data = encoded(samples, container, coding)
        assert ask(client, data).data["text"] == client.model.transcribe(data).strip()


@pytest.mark.parametrize(("data", "fields", "status", "param", "message"), [
    (b"", {}, 400, "file", "first bytes are those of no audio file"),
    (b"noise" * 99, {}, 400, "file", "ffmpeg -i FILE"), (LONG[:20], {}, 400, "file", "cannot be read as WAV"),
    (wav(b""), {}, 400, "file", "has no samples"), (wav(bytes(10), rate=10**6), {}, 415, "file", "1,000,000"),
    (wav(np.full(9, 3e4, "<f4").tobytes(), 3, 32), {}, 400, None, "divide them"),
    (SHORT, {"model": "large"}, 404, "model", "no model 'large'"),
    (SHORT, {"response_format": "xml"}, 400, "response_format", "json, text, srt, verbose_json or vtt"),
    (SHORT, {"response_format": "srt", "stream": "true"}, 400, "response_format", "a stream has events"),
    (SHORT, {"language": "de"}, 400, "language", "knows English alone"),
    (SHORT, {"temperature": "warm"}, 400, "temperature", "expected"),
    (SHORT, {"temperature": "-1"}, 400, "temperature", "temperature must be"),
    (SHORT, {"temperature": ["0", "1"]}, 400, "temperature", "comes 2 times"),
    (SHORT, {"timestamp_granularities[]": "word"}, 400, "timestamp_granularities", "needs response_format"),
    (SHORT, {"timestamp_granularities[]": "line"}, 400, "timestamp_granularities[0]", "segment or word"),
    (SHORT, {"prompt": "Names."}, 400, "prompt", "no text beside a recording"),
    (SHORT, {"include[]": "logprobs"}, 400, "include", "log probabilities"),
    (SHORT, {"chunking_strategy": "server_vad"}, 400, "chunking_strategy", "windows")])
def test_bad_input(client, data, fields, status, param, message):
    found = ask(client, data, **fields)
    assert (found.status, found.data["error"]["param"]) == (status, param), found.data
    assert message in found.data["error"]["message"]


def test_fields_without_effect(client):
    found = ask(client, SHORT, chunking_strategy="auto", prompt="", language="", hotwords="a", beam_size="5")
    assert found.data == ask(client, SHORT).data
    assert found.headers["x-engine-ignored"] == "hotwords, beam_size"


def test_other_bodies(client):
    for headers, status in (({"content-type": "application/json"}, 415), ({"content-encoding": "gzip"}, 415),
                            ({"origin": "http://other"}, 400), ({"origin": f"http://127.0.0.1:{client.port}"}, 200)):
        assert ask(client, SHORT, headers=headers).status == status, headers


def test_containers_that_ffmpeg_alone_reads(client, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    found = ask(client, bytes(4) + b"ftypM4A " + bytes(99))
    assert found.status == 415
    assert "install ffmpeg" in found.data["error"]["message"]


def test_limits(model):
    with serving(model, max_recording=len(SHORT) + 500) as client:
        assert ask(client, SHORT).status == 200
        found = ask(client, LONG)
        assert (found.status, "--max-recording-bytes" in found.data["error"]["message"]) == (413, True)
        client.close()
        client.served.service.max_seconds = 1
        found = ask(client, SHORT)
        assert (found.status, "more than 1 s" in found.data["error"]["message"]) == (413, True)
        assert (client.served.disk.used, client.served.service.memory.used) == (0, 0)
    with serving(model, timeout=0.3) as client:     # half a body
        answer = raw(client.port, b"POST /v1/audio/transcriptions HTTP/1.1\r\nhost: a\r\nconnection: close\r\n"
                     b"content-type: multipart/form-data; boundary=cut\r\ncontent-length: 10000\r\n\r\n"
                     + form(SHORT)[:5000], wait=5)
        assert answer.startswith(b"HTTP/1.1 408")
        assert client.served.disk.used == 0


@pytest.mark.parametrize("most", [1, 64])
def test_recordings_of_many_clients(model, most, monkeypatch):
    """Whatever the model hears together, also where a window of one recording alone has room."""
    monkeypatch.setattr(type(model.transcription), "together", lambda self, config: most)
    sounds = [LONG, SHORT, sound(3, 3), SILENT, sound(31, 4)]
    expected = [model.transcribe(data, timestamps=True) for data in sounds]
    with serving(model, keys=["a", "b"]) as client:
        def one(i):
            own = Client(client.port)
            try:
                return ask(own, sounds[i], response_format="srt",
                           headers={"authorization": "Bearer " + "ab"[i % 2]}).data.decode()
            finally:
                own.close()

        found = together([partial(one, i) for i in range(len(sounds))])
        assert found == [lines(srt_lines(each, False)) for each in expected]
        assert (client.served.disk.used, client.served.service.memory.used) == (0, 0)


def idle(client):
    """Return whether nothing of any request is left."""
    service = client.served.service
    return (client.served.disk.used, service.memory.used, service.statistics().waiting_requests,
            sum(service._queue.counts), len(client.model.prepared.decoder._sources)) == (0,) * 5


@contextmanager
def held(service, monkeypatch, window=False):
    """Hold the steps of the model, or those after the first window of a recording, until the block ends."""
    goes_on, stepper, turns = threading.Event(), service._queue._stepper, service._hearings
    step, go_on = stepper.step, turns.go_on

    def stepped(*arguments):
        assert goes_on.wait(60)
        return step(*arguments)

    def next_window(hearing):
        goes_on.clear()
        go_on(hearing)

    with monkeypatch.context() as patch:
        patch.setattr(stepper, "step", stepped)
        if window:
            goes_on.set()
            patch.setattr(turns, "go_on", next_window)
        try:
            yield
        finally:
            goes_on.set()


@pytest.mark.parametrize("place", ["body", "answer", "stream"])
def test_a_client_that_leaves(client, monkeypatch, place):
    service = client.served.service
    before = service.statistics().cancelled
    body = form(LONG, **({"stream": "true"} if place == "stream" else {}))
    with held(service, monkeypatch, window=place == "stream"):
        with socket.create_connection(("127.0.0.1", client.port)) as connection:
            connection.sendall(b"POST %b HTTP/1.1\r\nhost: a\r\ncontent-type: multipart/form-data; boundary=cut\r\n"
                               b"content-length: %d\r\n\r\n" % (TRANSCRIBE.encode(), len(body)))
            connection.sendall(body[:9999] if place == "body" else body)
            if place == "stream":
                assert connection.recv(9).startswith(b"HTTP")
            elif place == "answer":
                wait_for(lambda: service._queue.counts[0] == 1)
            else:
                wait_for(lambda: client.served.disk.used > 9000)
        wait_for(lambda: service.statistics().cancelled == before + (place != "body"))
    wait_for(lambda: idle(client))
    assert service.statistics().cancelled == before + (place != "body")
    assert ask(client, SHORT).data["text"] == client.model.transcribe(SHORT).strip()


def test_the_time_of_a_request(client):
    found = ask(client, wav(bytes(2**24)), headers={"x-request-timeout": "0.2"})
    assert (found.status, found.data["error"]["message"]) == (504, str(TimedOut(found.data["error"]["message"])))
    wait_for(lambda: idle(client))


def test_models_of_another_kind_say_what_they_serve():
    from ..tools.encoders import engine_of
    from ..tools.tiny_models import random_model
    from ..tools.tiny_text import tiny_text

    with serving(engine_of(random_model(tiny_text()), threads=1)) as client:
        found = ask(client, SHORT)
        assert (found.status, "needs a model of speech" in found.data["error"]["message"]) == (400, True)
        assert client.served.disk.used == 0


def test_pages(client):
    assert client.get("/info").data["model_type"] == {"transcriber": {"languages": []}}
    assert client.get("/v1/models").data["data"][0]["kind"] == "transcribe"
    before = client.get("/metrics").data.decode()
    ask(client, SHORT)
    after = client.get("/metrics").data.decode()
    assert (before.count("te_generate_success"), before == after) == (after.count("te_generate_success"), False)


def test_the_documents_have_every_field():
    section = (ROOT / "docs/server.md").read_text(encoding="utf-8").partition("\n## Speech\n")[2].partition("\n## ")[0]
    named = {name for row in section.splitlines() if row.startswith("| `")
             for name in re.findall(r"`(\w+)`", row.split(" | ")[0])}
    assert named == set(TABLE)


@pytest.fixture(scope="module", params=["wav2vec2_base", "hubert_ctc"])
def letters(request):
    with serving(Transcriber.load(ENCODERS / request.param, threads=1)) as client:
        yield client


@pytest.mark.parametrize("data", [sound(61), SHORT], ids=["long", "short"])
def test_a_model_of_letters_writes_what_the_library_spells(letters, data):
    """Of windows that overlap, too; it has times of segments and words, and nothing of tokens."""
    transcript, words = (letters.model.transcribe(data, timestamps=kind) for kind in (True, "word"))
    text = letters.model.transcribe(data)
    assert ask(letters, data).data["text"] == text == transcript.text
    assert ask(letters, data, response_format="srt").data.decode() == lines(srt_lines(transcript, False))
    both = {"timestamp_granularities[]": ["word", "segment"]}
    found = ask(letters, data, response_format="verbose_json", **both).data
    assert found["text"] == text
    assert [(one["start"], one["end"], one["text"]) for one in found["segments"]] == [
        (one.start, one.end, one.text) for one in transcript.segments]
    assert {(one["avg_logprob"], one["seek"], *one["tokens"]) for one in found["segments"]} == {(None, None)}
    assert [(one["word"], one["start"], one["end"]) for one in found["words"]] == [
        (one.text, one.start, one.end) for segment in words.segments for one in segment.words]
    stream = ask(letters, data, stream="true", temperature="0").data.decode()
    assert json.loads(stream.split("\n\n")[-2].removeprefix("data: "))["text"] == text


@pytest.mark.parametrize(("fields", "param"), [
    ({"language": "en"}, "language"), ({"temperature": "0.5"}, "temperature"), ({"prompt": "a"}, "prompt")])
def test_what_a_model_of_letters_does_not_do_is_named(letters, fields, param):
    found = ask(letters, SHORT, **fields)
    assert (found.status, found.data["error"]["param"]) == (400, param)
    found = ask(letters, SHORT, path=TRANSCRIBE.replace("transcriptions", "translations"))
    assert (found.status, "translates nothing" in found.data["error"]["message"]) == (400, True)
    found = ask(letters, sound(0.01))
    assert (found.status, found.data["error"]["param"]) == (400, "file")
    assert letters.served.service.statistics().failed == 0


def test_recordings_of_many_clients_of_a_model_of_letters(letters, monkeypatch):
    """Each has its own text, also beside one that leaves, and the pages of the server know the model."""
    sounds = [sound(seconds, seed) for seed, seconds in enumerate((31, 2, 45, 1))]
    expected = [letters.model.transcribe(data) for data in sounds]
    goes_on, compute = threading.Event(), letters.model.queue._compute_next
    monkeypatch.setattr(letters.model.queue, "_compute_next", lambda: goes_on.wait(60) and compute())
    body = form(sound(100, 9))
    leaver = socket.create_connection(("127.0.0.1", letters.port))
    leaver.sendall(b"POST %b HTTP/1.1\r\nhost: x\r\ncontent-type: %b\r\ncontent-length: %d\r\n\r\n%b" % (
        TRANSCRIBE.encode(), FORM["content-type"].encode(), len(body), body))
    try:
        wait_for(lambda: letters.served.service.statistics().waiting_requests == 1)
    finally:
        goes_on.set()
    clients = [Client(letters.port) for _ in sounds]
    asked = [partial(ask, client, data) for client, data in zip(clients, sounds, strict=True)]
    leaver.close()
    assert [found.data["text"] for found in together(asked)] == expected
    wait_for(lambda: letters.served.service.statistics().waiting_requests == 0)
    assert letters.served.service.memory.used == 0
    for client in clients:
        client.close()
    assert {letters.get(path).status for path in ("/info", "/v1/models", "/metrics", "/health")} == {200}
