"""Run `engine embed` from and to S3, in whose place moto's server stands, with the settings that a user has."""

import json
from urllib.request import Request, urlopen

import pytest

from engine.cli.main import main

from ..jobs.prove import damage, parts, write_rows
from ..tools.encoders import save_encoder
from ..tools.tiny_models import random_model
from ..tools.tiny_text import tiny_text

moto = pytest.importorskip("moto.server")
fs = pytest.importorskip("pyarrow.fs")
pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture
def bucket(monkeypatch):
    """Return a file system with an empty bucket called "bucket"."""
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    for name, value in (("AWS_ENDPOINT_URL", f"http://{host}:{port}"), ("AWS_ACCESS_KEY_ID", "key"),
                        ("AWS_SECRET_ACCESS_KEY", "secret"), ("AWS_DEFAULT_REGION", "us-east-1")):
        monkeypatch.setenv(name, value)
    urlopen(Request(f"http://{host}:{port}/bucket", method="PUT")).close()
    yield fs.FileSystem.from_uri("s3://bucket")[0]
    server.stop()


def test_the_parts_of_a_local_job(bucket, tmp_path, capsys):
    model, rows = str(tmp_path / "model.npz"), tmp_path / "rows.parquet"
    save_encoder(random_model(tiny_text()), model)
    write_rows(rows, 70)
    (tmp_path / "lines.jsonl").write_text('{"text": "the cat"}\n{"text": null}\n' * 9)
    fs.copy_files(str(tmp_path), "bucket/in", source_filesystem=fs.LocalFileSystem(), destination_filesystem=bucket)

    def embed(place, output, *options):
        inputs = [f"{place}/*.parquet", f"{place}/lines.jsonl"]
        return main(["embed", model, "--input", inputs[0], "--input", inputs[1], "--output", output, "--unit-rows",
                     "16", "--json", *options])

    assert embed(str(tmp_path), str(tmp_path / "out")) == 0
    assert embed("s3://bucket/in", "s3://bucket/out") == 0
    found = contents(bucket)
    local = {path.name: path.read_bytes() for path in parts(tmp_path / "out").values()}
    # The name of a part says when its input was written, and its bytes do not.
    assert [data for name, data in sorted(found.items()) if name.startswith("part-")] == [*local.values()]
    assert len([name for name in found if name.startswith("_rejected/")]) == 1

    gone = [name for name in found if name.startswith("part-")][1:3]
    for name in gone:
        bucket.delete_file(f"bucket/out/{name}")
    capsys.readouterr()
    assert embed("s3://bucket/in", "s3://bucket/out") == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["parts"] == 2
    assert contents(bucket) == found

    fs.copy_files("bucket/out", str(tmp_path / "copy"), source_filesystem=bucket)
    [changed] = damage(tmp_path / "copy", 1)
    with bucket.open_output_stream(f"bucket/out/{changed}") as file:
        file.write((tmp_path / "copy" / changed).read_bytes())
    assert embed("s3://bucket/in", "s3://bucket/out", "--verify") == 1
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines() if '"verified"' in line]
    assert [event["name"] for event in events if event["fault"]] == [changed]


def contents(bucket):
    """Return the bytes of each object below bucket/out."""
    found = bucket.get_file_info(fs.FileSelector("bucket/out", recursive=True))
    return {info.path.removeprefix("bucket/out/"): bucket.open_input_stream(info.path).readall()
            for info in found if info.type == fs.FileType.File}
