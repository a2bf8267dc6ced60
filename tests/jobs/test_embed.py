"""Test `engine embed`: the bits of `encode`, resume, bad rows, verification, and what is refused."""

import json
import resource

import numpy as np
import pytest

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

from engine import Engine  # noqa: E402
from engine.base.errors import InputError  # noqa: E402
from engine.interface.cli.main import main  # noqa: E402
from engine.jobs import open_folder  # noqa: E402
from engine.jobs.job import CHUNK  # noqa: E402

from ..tools.encoders import save_encoder  # noqa: E402
from ..tools.head_models import folder_of, names_of  # noqa: E402
from ..tools.late_folders import write_late  # noqa: E402
from ..tools.tiny_models import random_model  # noqa: E402
from ..tools.tiny_text import tiny_text  # noqa: E402
from .prove import damage, every_row_once, parts, same_parts, write_batch, write_rows  # noqa: E402


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "model.npz"
    save_encoder(random_model(tiny_text()), path)
    return str(path)


@pytest.fixture
def run(model, tmp_path):
    """Return a function that runs the command on a file of rows, with an output folder."""
    rows = tmp_path / "rows.parquet"
    write_rows(rows, 70)

    def run(*options, output="out", file=rows, model=model):
        return main(["embed", str(model), "--input", str(file), "--output", str(tmp_path / output), "--unit-rows", "16",
                     "--unit-bytes", "300", *options])

    return run


def test_the_bits_of_encode_and_resume(run, model, tmp_path, capsys):
    assert run("--id", "id") == 0
    out = tmp_path / "out"
    every_row_once(out, 70)
    found = np.concatenate([np.stack(pq.read_table(path)["vector"].to_numpy()) for path in parts(out).values()])
    texts = pq.read_table(tmp_path / "rows.parquet")["text"].to_pylist()
    assert found.tobytes() == Engine.load(model).encode(texts).tobytes()
    before = {path: path.read_bytes() for path in [*parts(out).values(), out / "manifest.json"]}
    gone = [path for path in before if path.name != "manifest.json"][1:4]
    for path in gone:
        path.unlink()
    capsys.readouterr()
    assert run("--id", "id", "--json") == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["parts"] == 3
    assert {path: path.read_bytes() for path in before} == before


def read(folder):
    """Return the rows of all parts in a folder as one table."""
    return pa.concat_tables([pq.read_table(path) for path in parts(folder).values()])


def test_a_unit_of_many_chunks(run, model, tmp_path):
    rows = tmp_path / "rows.parquet"
    write_rows(rows, 2 * CHUNK + 50)
    assert run("--id", "id", "--unit-rows", "4096") == 0
    [part] = parts(tmp_path / "out").values()
    every_row_once(tmp_path / "out", 2 * CHUNK + 50)
    texts = pq.read_table(rows)["text"].to_pylist()
    assert np.stack(pq.read_table(part)["vector"].to_numpy()).tobytes() == Engine.load(model).encode(texts).tobytes()


def test_int8_and_bits(run, model, tmp_path):
    engine, texts = Engine.load(model), pq.read_table(tmp_path / "rows.parquet")["text"].to_pylist()
    vectors = engine.encode(texts)
    ranges = np.stack([vectors.min(axis=0), vectors.max(axis=0)])
    np.save(tmp_path / "ranges.npy", ranges)
    assert run("--dtype", "int8", "--ranges", str(tmp_path / "ranges.npy")) == 0
    assert run("--dtype", "binary", output="bits") == 0
    for folder, options in (("out", {"precision": "int8", "ranges": ranges}), ("bits", {"precision": "binary"})):
        found = np.stack(read(tmp_path / folder)["vector"].to_numpy())
        expected = engine.encode(texts, **options)
        assert (found.dtype, found.tobytes()) == (expected.dtype, expected.tobytes())
    assert run("--dtype", "int8", "--ranges", str(tmp_path / "rows.parquet")) == 1
    np.save(tmp_path / "ranges.npy", ranges * 2)
    assert run("--dtype", "int8", "--ranges", str(tmp_path / "ranges.npy")) == 1      # other options in one folder


def test_classes_and_tokens(run, tmp_path):
    classifier, late = folder_of(names_of("classify")[0]), write_late(tmp_path / "late", "no mask")
    texts = pq.read_table(tmp_path / "rows.parquet")["text"].to_pylist()
    assert run("--result", "classes", "--keep", "text", model=classifier) == 0
    found = read(tmp_path / "out")
    assert found["text"].to_pylist() == texts
    assert found.select(["label", "score"]).to_pylist() == Engine.load(classifier).classify(texts)
    assert run("--result", "tokens", "--id", "id", model=late, output="tokens") == 0
    every_row_once(tmp_path / "tokens", 70)
    found = read(tmp_path / "tokens")["vectors"].to_pylist()
    for row, vectors in zip(found, Engine.load(late).encode_tokens(texts), strict=True):
        assert np.array(row, np.float32).tobytes() == vectors.tobytes()
    assert run("--result", "tokens", "--id", "id", "--verify", model=late, output="tokens") == 0


def test_another_instruction_set_is_refused(run, tmp_path, capsys):
    assert run("--id", "id") == 0
    job = tmp_path / "out/job.json"
    recorded = json.loads(job.read_text())
    own = recorded["instruction_sets"]
    job.write_text(json.dumps(recorded | {"instruction_sets": ["cython, another"]}))
    next(iter(parts(tmp_path / "out").values())).unlink()
    assert run("--id", "id") == 1
    assert "were computed by cython, another, and this is" in capsys.readouterr().err
    assert run("--id", "id", "--allow-mixed-isa") == 0
    assert json.loads(job.read_text())["instruction_sets"] == sorted([*own, "cython, another"])
    every_row_once(tmp_path / "out", 70)


def test_a_file_that_cannot_be_written(run, tmp_path):
    """The limit on the size of files stops a write in its middle, as a full disk does."""
    assert run("--id", "id", output="expected") == 0
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    sizes = sorted(path.stat().st_size for path in parts(tmp_path / "expected").values())
    resource.setrlimit(resource.RLIMIT_FSIZE, (sizes[0] + 1, limits[1]))     # the last part is the smallest
    try:
        assert run("--id", "id") == 1
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert {path.name for path in (tmp_path / "out").iterdir()} == {".claims", "job.json"}
    assert run("--id", "id") == 0
    same_parts(tmp_path / "out", tmp_path / "expected")


def test_shards_divide_the_units(run, tmp_path):
    assert run("--id", "id") == 0
    assert [run("--id", "id", "--shard", f"{i}/3", output="shards") for i in range(3)] == [0] * 3
    for path in [*parts(tmp_path / "out").values(), tmp_path / "out/manifest.json"]:
        assert (tmp_path / "shards" / path.name).read_bytes() == path.read_bytes()
    assert run("--shard", "3/3") == 1


@pytest.mark.parametrize("options", [(), ("4",)], ids=["whole", "sample"])
def test_verification_names_damaged_parts(run, tmp_path, capsys, options):
    assert run("--id", "id") == 0
    assert run("--id", "id", "--verify", *options) == 0
    chosen = damage(tmp_path / "out", 2)
    manifest = json.loads((tmp_path / "out/manifest.json").read_text())
    other = min(manifest["parts"].keys() - {*chosen})
    manifest["parts"][other]["sha256"] = "0" * 64
    (tmp_path / "out/manifest.json").write_text(json.dumps(manifest))
    capsys.readouterr()
    assert run("--id", "id", "--verify", *options, "--json") == 1
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {event["name"] for event in events if event["fault"]} == {*chosen, other}


def test_bad_rows_go_to_a_side_file(run, tmp_path):
    file = tmp_path / "rows.jsonl"
    lines = [b'{"id": 1, "text": "the cat"}', b'{"id": 2, "text": null}', b'{"id": 3}', b"no json", b"",
             b'{"id": 5, "text": "\\ud800"}', b'{"id": 6, "text": "\xff"}', b'{"id": 7, "text": "the cat"}']
    file.write_bytes(b"\n".join(lines * 20))
    assert run("--id", "id", file=file) == 0
    ids = [number for path in parts(tmp_path / "out").values() for number in pq.read_table(path)["id"].to_pylist()]
    assert ids == ["1", "7"] * 20
    rejected = [json.loads(line) for path in sorted((tmp_path / "out/rejected").iterdir())
                for line in path.read_text().splitlines()]
    assert len(rejected) == 100
    assert [row["id"] for row in rejected[:5]] == ["2", "3", None, "5", None]


@pytest.mark.parametrize(("options", "message"), [
    ((), "with the field 'text' (did you mean texts?); the fields are texts, id"),
    (("--column", "texts", "--id", "no"), "with the field 'no'"), (("--column", "texts", "--id", "id"), None)])
def test_a_field_that_no_object_has(run, tmp_path, capsys, options, message):
    file = tmp_path / "rows.jsonl"
    file.write_text('no json\n{"texts": "the cat"}\n' + '{"id": 1, "texts": "the cat"}\n' * 20)
    assert run(*options, file=file) == (message is not None)
    assert (message or "") in capsys.readouterr().err
    assert (tmp_path / "out").exists() == (message is None)


def test_csv_with_line_ends_in_fields(run, tmp_path):
    file = tmp_path / "rows.csv"
    file.write_text("id,text\n" + "".join(f'{i},"the\ncat, ""{i}"""\n' for i in range(100)))
    assert run("--id", "id", file=file) == 0
    assert len(parts(tmp_path / "out")) > 3
    ids = [number for path in parts(tmp_path / "out").values() for number in pq.read_table(path)["id"].to_pylist()]
    assert ids == [str(i) for i in range(100)]


def test_a_batch_of_requests(run, model, tmp_path):
    file = tmp_path / "batch"
    write_batch(file, 12)
    with file.open("a") as lines:
        lines.write('{"custom_id": "chat", "method": "POST", "url": "/v1/chat/completions", "body": {}}\n')
    assert run("--format", "openai", file=file) == 0
    answers = [json.loads(line) for path in parts(tmp_path / "out").values() for line in path.read_text().splitlines()]
    assert [row["custom_id"] for row in answers] == [f"request-{i}" for i in range(12)]
    request = json.loads(file.read_text().splitlines()[2])
    expected = Engine.load(model).encode(request["body"]["input"])
    data = answers[2]["response"]["body"]["data"]
    assert np.array([item["embedding"] for item in data], np.float32).tobytes() == expected.tobytes()
    [refused] = (tmp_path / "out/rejected").iterdir()
    assert "/v1/chat/completions" in json.loads(refused.read_text())["response"]["body"]["error"]["message"]


@pytest.mark.parametrize(("options", "message"), [
    (["--column", "no"], "has no column 'no'"), (["--dtype", "int8"], "--ranges"), (["--shard", "0"], "I/N"),
    (["--keep", "vector"], "this name"), (["--column", "id"], "not strings")])
def test_refusals(run, capsys, options, message):
    assert run(*options) == 1
    assert message in capsys.readouterr().err


def test_output_that_could_be_there_in_half_is_refused(tmp_path):
    open_folder(f"file://{tmp_path}/out").write("part", b"whole")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["part"]
    with pytest.raises(InputError, match="mount it as a folder"):
        open_folder("mock:///out")


def test_another_job_in_the_folder_is_refused(run, tmp_path, capsys):
    assert run("--id", "id") == 0
    assert run("--id", "id", "--normalize") == 1
    assert "normalize_embeddings" in capsys.readouterr().err
    write_rows(tmp_path / "rows.parquet", 71)
    assert run("--id", "id") == 1
    assert "--prune" in capsys.readouterr().err
    assert run("--id", "id", "--prune") == 0
    every_row_once(tmp_path / "out", 71)
    assert run("--id", "id", "--diff", str(tmp_path / "out")) == 0
