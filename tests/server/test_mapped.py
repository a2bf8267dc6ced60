"""A file of the model that changes while a server maps it."""

import os
import shutil

import pytest

pytest.importorskip("uvicorn")

from engine import Engine
from engine.files.reading import mapped_files
from engine.server import logs, mapped
from engine.server.mapped import MappedFiles

from ..tools.serving import serving
from .stopping import write_model

BODIES = {"/v1/embeddings": {"input": "the cat"}, "/embed": {"inputs": "the cat"}, "/v2/embed": {"texts": ["the cat"]}}


@pytest.fixture
def lines(monkeypatch):
    found = []
    monkeypatch.setattr(logs, "write", lambda event, **fields: found.append((event, fields)))
    monkeypatch.setattr(mapped, "_LOOK_SECONDS", 0.0)
    return found


def files_of(path):
    return {one: state for one, state in mapped_files().items() if one == path}


def statuses(client):
    return [client.post(path, body).status for path, body in BODIES.items()] + [client.get("/health").status]


def changed(lines):
    return [fields for event, fields in lines if event == "model_changed"]


def test_a_file_that_is_overwritten_ends_the_answers(tmp_path, lines):
    path = write_model(tmp_path)
    model = Engine.load(path, threads=1)
    with serving(model, files=files_of(path)) as client:
        assert statuses(client) == [200] * 4
        found = client.served.service.submit

        def submit(*args, **options):       # while the request is computed
            answer = found(*args, **options)
            answer.result()
            os.utime(path, ns=(1, 1))
            return answer

        client.served.service.submit = submit
        answer = client.post("/embed", BODIES["/embed"])
        assert (answer.status, answer.data["error_type"]) == (503, "Unhealthy")
        assert "written to while the server read it" in answer.data["error"]
        assert statuses(client) == [503] * 4
        assert 'te_request_failure{err="changed"}' in client.get("/metrics").data.decode()
        [line] = changed(lines)
        assert line["file"] == str(path)


def test_the_server_itself_looks_at_its_files(tmp_path, lines):
    path = write_model(tmp_path)
    model = Engine.load(path, threads=1)
    files = MappedFiles(files_of(path))
    files.look()
    assert not changed(lines)
    with open(path, "ab") as file:
        file.write(b"x")
    files.look()
    files.look()
    [line] = changed(lines)
    assert line["bytes_now"] == line["bytes_before"] + 1
    files.close()
    del model


def test_a_file_that_is_replaced_or_deleted_goes_on(tmp_path, lines):
    path = write_model(tmp_path)
    model = Engine.load(path, threads=1)
    state = files_of(path)
    with serving(model, files=state) as client:
        before = client.post("/embed", BODIES["/embed"]).data
        shutil.copyfile(path, tmp_path / "new")
        with open(tmp_path / "new", "r+b") as file:
            file.write(b"nothing")
        os.replace(tmp_path / "new", path)
        assert client.post("/embed", BODIES["/embed"]).data == before
        path.unlink()
        assert client.post("/embed", BODIES["/embed"]).data == before
        assert statuses(client) == [200] * 4
    MappedFiles(state).check()      # deleted before the server looks
    path.write_bytes(b"x")
    MappedFiles(state).check()      # replaced before that
    assert not changed(lines)


def test_a_copy_is_mapped_no_more(tmp_path):
    path = write_model(tmp_path)
    model = Engine.load(path, threads=1, memory="copy")
    assert not files_of(path)
    other = Engine.load(path, threads=1)
    assert list(files_of(path)) == [path]
    del other, model
