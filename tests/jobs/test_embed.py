"""Test `engine embed`: the bits of `encode`, resume, bad rows, verification, and what is refused."""

import errno
import json
import resource
import shutil

import numpy as np
import pytest

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

from engine import Engine  # noqa: E402
from engine.base.errors import InputError  # noqa: E402
from engine.cli.main import main  # noqa: E402
from engine.jobs import open_folder  # noqa: E402
from engine.jobs.job import CHUNK, option_of  # noqa: E402
from engine.jobs.storage import LocalFolder  # noqa: E402

from ..tools.encoders import save_encoder  # noqa: E402
from ..tools.head_models import folder_of, names_of  # noqa: E402
from ..tools.late_folders import write_late  # noqa: E402
from ..tools.module_folders import write_router  # noqa: E402
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
    before = {path: path.read_bytes() for path in [*parts(out).values(), out / "_manifest.json"]}
    gone = [path for path in before if path.name != "_manifest.json"][1:4]
    for path in gone:
        path.unlink()
    capsys.readouterr()
    assert run("--id", "id", "--json") == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["parts"] == 3
    assert {path: path.read_bytes() for path in before} == before


def test_files_without_an_option(run, model, tmp_path):
    write_rows(tmp_path / "other.parquet", 3)
    assert run("--unit-rows", "16") == 0
    files = [str(tmp_path / name) for name in ("rows.parquet", "other.parquet")]
    assert main(["embed", "-o", str(tmp_path / "both"), model, files[0], "--unit-rows", "16", files[1]]) == 0
    assert main(["embed", "-o", str(tmp_path / "same"), model, files[0], "--unit-rows", "16", "--input", files[1]]) == 0
    same_parts(tmp_path / "both", tmp_path / "same")
    assert len(parts(tmp_path / "both")) > len(parts(tmp_path / "out"))


def test_a_finished_job_on_a_disk_that_cannot_be_written(run, tmp_path, capsys, monkeypatch):
    assert run("--id", "id") == 0

    def refuse(self, name, *data):
        raise OSError(errno.EROFS, "Read-only file system", name)

    for method in ("write", "delete", "claim"):
        monkeypatch.setattr(LocalFolder, method, refuse)
    capsys.readouterr()
    assert run("--id", "id") == 0
    assert "all 5 parts are there already" in capsys.readouterr().out
    assert run("--id", "id", "--verify") == 0
    assert run("--diff", str(tmp_path / "out")) == 0
    next(iter(parts(tmp_path / "out").values())).unlink()
    assert run("--id", "id") == 1
    assert "Read-only file system" in capsys.readouterr().err


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
    job = tmp_path / "out/_job.json"
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
    assert {path.name for path in (tmp_path / "out").iterdir()} == {".claims", "_job.json"}
    assert run("--id", "id") == 0
    same_parts(tmp_path / "out", tmp_path / "expected")


def test_shards_divide_the_units(run, tmp_path):
    assert run("--id", "id") == 0
    assert [run("--id", "id", "--shard", f"{i}/3", output="shards") for i in range(3)] == [0] * 3
    for path in [*parts(tmp_path / "out").values(), tmp_path / "out/_manifest.json"]:
        assert (tmp_path / "shards" / path.name).read_bytes() == path.read_bytes()
    assert run("--shard", "3/3") == 1


@pytest.mark.parametrize("options", [(), ("4",)], ids=["whole", "sample"])
def test_verification_names_damaged_parts(run, tmp_path, capsys, options):
    assert run("--id", "id") == 0
    assert run("--id", "id", "--verify", *options) == 0
    chosen = damage(tmp_path / "out", 2)
    manifest = json.loads((tmp_path / "out/_manifest.json").read_text())
    other = min(manifest["parts"].keys() - {*chosen})
    manifest["parts"][other]["sha256"] = "0" * 64
    (tmp_path / "out/_manifest.json").write_text(json.dumps(manifest))
    capsys.readouterr()
    assert run("--id", "id", "--verify", *options, "--json") == 1
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {event["name"] for event in events if event["fault"]} == {*chosen, other}


def test_a_job_that_is_not_there_is_neither_right_nor_equal(run, tmp_path, capsys):
    assert run("--id", "id") == 0
    next(iter(parts(tmp_path / "out").values())).unlink()
    assert run("--id", "id", "--verify", "1") == 1
    assert "parts are missing" in capsys.readouterr().err
    assert run("--diff", str(tmp_path / "oops")) == 1
    assert "there is no folder" in capsys.readouterr().err
    assert not (tmp_path / "oops").exists()


def test_bad_rows_go_to_a_side_file(run, tmp_path):
    file = tmp_path / "rows.jsonl"
    lines = [b'{"id": 1, "text": "the cat"}', b'{"id": 2, "text": null}', b'{"id": 3}', b"no json", b"",
             b'{"id": 5, "text": "\\ud800"}', b'{"id": 6, "text": "\xff"}', b'{"id": 7, "text": "the cat"}']
    file.write_bytes(b"\n".join(lines * 20))
    assert run("--id", "id", file=file) == 0
    ids = [number for path in parts(tmp_path / "out").values() for number in pq.read_table(path)["id"].to_pylist()]
    assert ids == ["1", "7"] * 20
    assert pq.read_table(tmp_path / "out")["id"].to_pylist() == ids       # what is no part is skipped by its name
    rejected = [json.loads(line) for path in sorted((tmp_path / "out/_rejected").iterdir())
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
        lines.write('{"custom_id": "\\ud800", "method": "POST", "url": "/v1/embeddings", "body": {"input": "cat"}}\n')
    assert run("--format", "openai", file=file) == 0
    answers = [json.loads(line) for path in parts(tmp_path / "out").values() for line in path.read_text().splitlines()]
    assert [row["custom_id"] for row in answers] == [*(f"request-{i}" for i in range(12)), "\ud800"]
    request = json.loads(file.read_text().splitlines()[2])
    expected = Engine.load(model).encode(request["body"]["input"])
    data = answers[2]["response"]["body"]["data"]
    assert np.array([item["embedding"] for item in data], np.float32).tobytes() == expected.tobytes()
    [refused] = (tmp_path / "out/_rejected").iterdir()
    assert "/v1/chat/completions" in json.loads(refused.read_text())["response"]["body"]["error"]["message"]


@pytest.mark.parametrize(("options", "message"), [
    (["--column", "no"], "has no column 'no'"), (["--dtype", "int8"], "--ranges"), (["--shard", "0"], "I/N"),
    (["--truncate-dim", "999"], "--truncate-dim 999: the vectors of this model have "),
    (["--result", "classes", "--route", "x"], "--result classes does not go with --route"),
    (["--route", "query"], "--route query: this model has no routes; leave the option out"),
    (["--keep", "vector"], "this name"), (["--column", "id"], "not strings")])
def test_refusals(run, capsys, options, message):
    assert run(*options) == 1
    assert message in capsys.readouterr().err


def test_a_route_is_called_as_the_option_is(run, tmp_path, capsys):
    model = write_router(tmp_path / "router", "no default")
    for options, given in (([], "has to be given"), (["--route", "x"], "cannot be 'x'")):
        assert run(*options, model=model) == 1
        assert f"--route {given}: the routes of this model are query, document" in capsys.readouterr().err


@pytest.mark.parametrize(("name", "options", "message"), [
    ("rows.txt", ["--id", "id"], "rows.txt is text, whose lines have no column 'id'; leave --id"),
    ("rows.txt.gz", ["--format", "text"], "rows.txt.gz is compressed, and such files are not read; decompress it"),
    ("rows.csv", [], "it has id, texts; --column names the one with the text")])
def test_files_that_are_refused_before_anything_is_written(run, tmp_path, capsys, name, options, message):
    (tmp_path / name).write_text("id,texts\n1,the cat\n")
    assert run(*options, file=tmp_path / name) == 1
    assert message in capsys.readouterr().err
    assert not list((tmp_path / "out").glob("part-*"))


def test_output_that_could_be_there_in_half_is_refused(tmp_path):
    open_folder(f"file://{tmp_path}/out").write("part", b"whole")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["part"]
    with pytest.raises(InputError, match="mount it as a folder"):
        open_folder("mock:///out")


def test_another_job_in_the_folder_is_refused(run, tmp_path, capsys):
    assert run("--id", "id") == 0
    assert run("--normalize", "--keep", "text", "--unit-bytes", "400") == 1
    assert ("What differs: --id (id there, not given now); --keep (not given there, text now); --normalize (not "
            "given there, given now); --unit-bytes (300 there, 400 now). Give") in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["embed", "--help"])
    usage, recorded = capsys.readouterr().out, json.loads((tmp_path / "out/_job.json").read_text())
    assert all(f"{option_of(name)} " in usage for name in [*recorded["options"], "normalize_embeddings", "task"])
    write_rows(tmp_path / "rows.parquet", 71)
    assert run("--id", "id") == 1
    assert "--prune" in capsys.readouterr().err
    assert run("--id", "id", "--prune") == 0
    every_row_once(tmp_path / "out", 71)
    assert run("--id", "id", "--diff", str(tmp_path / "out")) == 0


def test_an_input_that_changes_while_it_is_read(run, tmp_path, capsys, monkeypatch):
    file = tmp_path / "rows.txt"
    file.write_text("the cat\n" * 200)
    write = LocalFolder.write

    def change(folder, name, data):
        write(folder, name, data)
        if name.startswith("part-"):
            file.write_text("other\n" * 200)

    monkeypatch.setattr(LocalFolder, "write", change)
    assert run(file=file) == 1
    assert "rows.txt changed while the job ran" in capsys.readouterr().err
    assert not (tmp_path / "out/_manifest.json").exists()


def test_damage_of_a_finished_job_is_no_new_checksum(run, tmp_path, capsys):
    assert run("--id", "id") == 0
    manifest = (tmp_path / "out/_manifest.json").read_bytes()
    [chosen] = damage(tmp_path / "out", 1)
    assert run("--id", "id") == 1
    assert chosen in capsys.readouterr().err
    assert (tmp_path / "out/_manifest.json").read_bytes() == manifest
    path = tmp_path / "out" / chosen
    path.unlink()
    assert run("--id", "id") == 0
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 1       # in a page, so that the metadata can be read
    path.write_bytes(data)
    (tmp_path / "out/_manifest.json").unlink()
    capsys.readouterr()
    assert run("--id", "id") == 1
    assert f"{chosen}: is damaged" in capsys.readouterr().err
    assert run("--diff", str(tmp_path / "out")) == 1
    assert f"{chosen} in the output folder: is damaged" in capsys.readouterr().err
    path.unlink()
    first, second = list(parts(tmp_path / "out").values())[:2]
    second.write_bytes(first.read_bytes())
    assert run("--id", "id") == 1
    assert "holds the rows of another part" in capsys.readouterr().err
    second.unlink()
    assert run("--id", "id") == 0
    every_row_once(tmp_path / "out", 70)
    assert (tmp_path / "out/_manifest.json").read_bytes() == manifest


@pytest.mark.parametrize(("name", "text"), [("_job.json", "{"), ("_job.json", "{}"), ("_manifest.json", "[]"),
                                            ("_manifest.json", '{"parts": 3}'),
                                            ("_manifest.json", '{"parts": {"a": {}}}')])
def test_damaged_records(run, tmp_path, capsys, name, text):
    assert run("--id", "id") == 0
    (tmp_path / "out" / name).write_text(text)
    assert run("--id", "id") == 1
    assert f"{name} in the output folder is damaged" in capsys.readouterr().err


def test_a_manifest_is_of_all_parts(run, tmp_path, monkeypatch):
    (tmp_path / "in").mkdir()
    for name in ("a", "b"):
        (tmp_path / f"in/{name}.txt").write_text("the cat\n")
        assert run(file=tmp_path / "in/*.txt") == 0
    assert json.loads((tmp_path / "out/_manifest.json").read_text())["rows"] == 2
    (tmp_path / "in/c.txt").write_text("the cat\n")
    monkeypatch.setattr("engine.cli.embed._run", lambda *_: None)     # as if it were killed
    assert run(file=tmp_path / "in/*.txt") == 0
    assert not (tmp_path / "out/_manifest.json").exists()


def test_nothing_is_not_verified(run, tmp_path, capsys):
    assert run("--verify") == 1
    assert run("--diff", str(tmp_path / "typo")) == 1
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "typo").exists()
    assert run("--id", "id") == 0
    capsys.readouterr()
    assert run("--id", "id", "--normalize", "--verify") == 1
    assert "none of the 5 parts" in capsys.readouterr().err
    (tmp_path / "empty").mkdir()
    assert run("--diff", str(tmp_path / "empty")) == 1
    assert "the folder to compare with holds no part" in capsys.readouterr().err


def test_parts_are_compared_by_their_rows(run, tmp_path, capsys):
    """Two inputs may have the same 32 bits in the names of their parts."""
    for name, text in (("a", "the cat\n"), ("b", "a dog\n")):
        (tmp_path / f"{name}.txt").write_text(text)
    assert run(file=tmp_path / "[ab].txt") == 0
    one, other = parts(tmp_path / "out").values()
    place = one.name.rpartition("-")[0]
    other.rename(other.with_name(f"{place}-{other.name.rpartition('-')[2]}"))
    shutil.copytree(tmp_path / "out", tmp_path / "copy")
    assert run("--diff", str(tmp_path / "copy")) == 0
    one.unlink()
    capsys.readouterr()
    assert run("--diff", str(tmp_path / "copy")) == 1
    assert capsys.readouterr().out == f"{one.name}: only one of the two jobs has a part of these rows\n"


@pytest.mark.parametrize("options", [(), ("4",)], ids=["whole", "sample"])
def test_verification_of_parts_without_rows_and_with_other_rows(run, tmp_path, capsys, options):
    """A line that is longer than a unit leaves the next unit without a row."""
    file, out = tmp_path / "rows.txt", tmp_path / "out"
    file.write_text("the cat " * 50 + "\na dog\n" + "the dog " * 50)
    assert run(file=file) == 0
    assert run("--verify", *options, file=file) == 0
    first, second = list(parts(out).values())[:2]
    second.write_bytes(first.read_bytes())
    (out / "_manifest.json").unlink()
    capsys.readouterr()
    assert run("--verify", *options, file=file) == 1
    assert f"{second.name}: it has 1 rows" in capsys.readouterr().out
    shutil.copy(first, first.with_stem(f"{first.stem}2"))
    assert run("--diff", str(out)) == 1
    assert "two parts of the same rows" in capsys.readouterr().err


def test_verification_reads_the_rejected_rows(run, tmp_path):
    file = tmp_path / "rows.jsonl"
    file.write_text('{"text": "the cat"}\n{"text": null}\n')
    assert run(file=file) == 0
    assert run("--verify", file=file) == 0
    next((tmp_path / "out/_rejected").iterdir()).unlink()
    assert run("--verify", file=file) == 1


def test_parts_are_no_inputs(run, tmp_path, capsys):
    assert run("--keep", "id,text", output=".", file=tmp_path / "*.parquet") == 1
    assert run("--keep", "id,text", output="in/out", file=tmp_path / "**/*.parquet") == 1
    assert "also matches what the job writes" in capsys.readouterr().err
    assert run("--keep", "id,text", output=".", file=tmp_path / "rows.*") == 0


def test_odd_columns_of_parquet(run, tmp_path, capsys):
    file = tmp_path / "odd.parquet"
    table = pa.table({"text": ["the cat", None], "k": pa.array(["a", "b"], pa.string_view()),
                      "nan": [1.0, float("nan")]})
    pq.write_table(table, file)
    assert run("--id", "k", "--keep", "nan", file=file) == 0
    assert read(tmp_path / "out")["k"].to_pylist() == ["a"]
    [rejected] = (tmp_path / "out/_rejected").iterdir()
    assert json.loads(rejected.read_text(), parse_constant=pytest.fail)["nan"] == "nan"
    pq.write_table(table.rename_columns(["text", "k", "k"]), file)
    assert run("--id", "k", file=file, output="twice") == 1
    assert "2 columns of the name 'k'" in capsys.readouterr().err
