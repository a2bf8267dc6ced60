"""Test `engine embed`: the bits of `encode`, resume, bad rows, verification, and what is refused."""

import errno
import json
import resource
import shutil

import numpy as np
import pytest

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
isa = pytest.importorskip("engine.backends.cython_cpu.isa", reason="the compiled kernels are not built")

from engine import Engine  # noqa: E402
from engine.base.errors import InputError  # noqa: E402
from engine.cli.main import main  # noqa: E402
from engine.jobs.job import option_of  # noqa: E402
from engine.jobs.results import TEXTS_AT_ONCE  # noqa: E402
from engine.jobs.storage import LocalFolder, open_folder  # noqa: E402

from ..tools.encoders import save_encoder  # noqa: E402
from ..tools.head_models import folder_of, names_of  # noqa: E402
from ..tools.late_folders import write_late  # noqa: E402
from ..tools.module_folders import write_router  # noqa: E402
from ..tools.tiny_models import random_model  # noqa: E402
from ..tools.tiny_text import tiny_text  # noqa: E402
from ..tools.zero_shot import nli_folder  # noqa: E402
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
    write_rows(rows, 2 * TEXTS_AT_ONCE + 50)
    assert run("--id", "id", "--unit-rows", "4096") == 0
    [part] = parts(tmp_path / "out").values()
    every_row_once(tmp_path / "out", 2 * TEXTS_AT_ONCE + 50)
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


def test_classes_of_the_user(run, tmp_path, capsys):
    model, texts = nli_folder("bert_classify"), pq.read_table(tmp_path / "rows.parquet")["text"].to_pylist()
    labels = ["--candidate-labels", "good", "a cat"]
    assert run("--result", "classes", *labels, "--multi-label", model=model) == 0
    found = Engine.load(model).classify(texts, candidate_labels=["good", "a cat"], multi_label=True, truncation=True)
    assert read(tmp_path / "out").select(["label", "score"]).to_pylist() == found
    assert run("--result", "classes", *labels, "--multi-label", "--verify", model=model) == 0
    assert run("--result", "classes", *labels, model=model) == 1        # another job
    assert run(*labels, model=model, output="other") == 1
    assert "--result vectors does not go with --candidate-labels" in capsys.readouterr().err


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


def test_portable_bits_have_no_instruction_set(run, tmp_path, monkeypatch, capsys):
    """Parts that several sets wrote into one folder are those of each, and each verifies them all."""
    sets = [name for name in isa.available() if isa.load(name).fused]
    options = ("--id", "id", "--precision", "int8", "--bits", "portable")
    for i, name in enumerate(sets):
        monkeypatch.setenv("ENGINE_ISA", name)
        assert run(*options, "--shard", f"{i}/{len(sets)}") == 0
        assert run(*options, output=name) == 0
    for name in sets:
        monkeypatch.setenv("ENGINE_ISA", name)
        assert run(*options, "--verify") == 0
        assert run(*options, "--verify=2") == 0
        same_parts(tmp_path / "out", tmp_path / name)
    every_row_once(tmp_path / "out", 70)
    manifest = json.loads((tmp_path / "out/_manifest.json").read_text())
    assert manifest["instruction_sets"] == [manifest["options"]["bits"]] == ["portable bits, version 1"]
    capsys.readouterr()
    assert run("--id", "id", "--precision", "int8") == 1
    assert "--bits (portable bits, version 1 there, not given now)" in capsys.readouterr().err


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
    assert {row["response"]["status_code"] for row in answers} == {200}
    request = json.loads(file.read_text().splitlines()[2])
    expected = Engine.load(model).encode(request["body"]["input"])
    data = answers[2]["response"]["body"]["data"]
    assert np.array([item["embedding"] for item in data], np.float32).tobytes() == expected.tobytes()
    [refused] = (tmp_path / "out/_rejected").iterdir()
    response = json.loads(refused.read_text())["response"]
    assert response["status_code"] == 400
    assert "/v1/chat/completions" in response["body"]["error"]["message"]


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
    shutil.copy(first, first.with_stem(f"{first.stem[:-1]}{'1' if first.stem[-1] == '0' else '0'}"))
    assert run("--diff", str(out)) == 1
    assert "two parts of the same rows" in capsys.readouterr().err


@pytest.mark.parametrize("finished", [True, False], ids=["finished", "no manifest"])
@pytest.mark.parametrize("change", [bytes, lambda data: data + data], ids=["deleted", "damaged"])
def test_rejected_rows_are_verified(run, tmp_path, capsys, finished, change):
    file = tmp_path / "rows.jsonl"
    file.write_text('{"text": "the cat"}\n{"text": null}\n')
    assert run(file=file) == 0
    assert run("--verify", file=file) == 0
    [rejected] = (tmp_path / "out/_rejected").iterdir()
    before = rejected.read_bytes()
    rejected.write_bytes(change(before)) if change is not bytes else rejected.unlink()
    if not finished:
        (tmp_path / "out/_manifest.json").unlink()
    capsys.readouterr()
    assert run("--verify", file=file) == 1
    assert run("--verify", "5", file=file) == int(finished)
    assert run(file=file) == 1
    assert f"_rejected/{rejected.name}: " in capsys.readouterr().err.splitlines()[-1]
    next(iter(parts(tmp_path / "out").values())).unlink()
    assert run(file=file) == 0
    assert rejected.read_bytes() == before
    assert run("--verify", "5", file=file) == 0


def test_no_damage_of_an_unfinished_job_becomes_a_checksum(run, tmp_path, capsys):
    """Each bit of the metadata: a flipped one may only change the name of a column, or a number of rows."""
    file = tmp_path / "rows.jsonl"
    file.write_text('{"text": "the cat"}\n{"text": null}\n')
    assert run(file=file) == 0
    (tmp_path / "out/_manifest.json").unlink()
    [path] = parts(tmp_path / "out").values()
    good = path.read_bytes()
    places = [good.index(b"vector"), good.rindex(b"vector"), good.rindex(b'"isa"'), good.rindex(b'"tokens"'),
              good.rindex(b'"rejected"'), good.rindex(b'"checksum"'), good.rindex(b'"checksum"') + 15]
    for place in places:
        damaged = bytearray(good)
        damaged[place + 2] ^= 1
        path.write_bytes(damaged)
        for options in ((), ("--verify",), ("--verify", "1"), ("--diff", str(tmp_path / "out"))):
            capsys.readouterr()
            assert run(*options, file=file) == 1, (place, options)
            assert path.name in "".join(capsys.readouterr())
    assert not (tmp_path / "out/_manifest.json").exists()


def test_a_rejected_row_keeps_its_place_and_its_columns(run, tmp_path):
    file = tmp_path / "rows.jsonl"
    file.write_text('{"text": null, "input": "mine", "position": "p", "reason": "r", "columns": "c", "other": "o"}\n')
    assert run("--keep", "input,position,reason,columns,other", file=file) == 0
    [rejected] = (tmp_path / "out/_rejected").iterdir()
    assert json.loads(rejected.read_text()) == {
        "input": "rows.jsonl", "position": 0, "other": "o", "reason": "the text is null",
        "columns": {"input": "mine", "position": "p", "reason": "r", "columns": "c"}}


@pytest.mark.parametrize("kind", ["timestamp[ns]", "timestamp[ns, tz]", "timestamp[us, tz]", "timestamp[us]", "date32",
                                  "duration", "time64", "views", "struct", "map"])
def test_rejected_rows_keep_what_arrow_has(run, tmp_path, kind):
    """Python has no nanoseconds, no dates after the year 9999 and not every time zone."""
    column, expected = {
        "timestamp[ns]": (pa.array([1], pa.timestamp("ns")), "1970-01-01 00:00:00.000000001"),
        "timestamp[ns, tz]": (pa.array([1], pa.timestamp("ns", "Mars/Phobos")), "1970-01-01 00:00:00.000000001Z"),
        "timestamp[us, tz]": (pa.array([1], pa.timestamp("us", "Mars/Phobos")), "1 timestamp[us, tz=Mars/Phobos]"),
        "timestamp[us]": (pa.array([2**62], pa.timestamp("us")), "4611686018427387904 timestamp[us]"),
        "date32": (pa.array([2**30], pa.int32()).cast(pa.date32()), "1073741824 date32[day]"),
        "duration": (pa.array([1], pa.duration("ns")), "1 duration[ns]"),
        "time64": (pa.array([1], pa.time64("ns")), "00:00:00.000000001"),
        "views": (pa.array([["a"]], pa.list_(pa.string_view())), "['a']"),
        "struct": (pa.array([{"a": 1}], pa.struct({"a": pa.duration("ns")})), "{'a': '1 duration[ns]'}"),
        "map": (pa.array([[("k", 1)]], pa.map_(pa.string(), pa.time64("ns"))), "[('k', '00:00:00.000000001')]"),
    }[kind]
    file = tmp_path / "odd.parquet"
    both = pa.concat_arrays([column, column]) if kind != "views" else pa.array([["a"], ["a"]], column.type)
    pq.write_table(pa.table({"text": pa.array([None, "the cat"], pa.string()), "k": both}), file)
    assert run("--keep", "k", file=file) == 0
    assert run("--keep", "k", "--verify", file=file) == 0
    [rejected] = (tmp_path / "out/_rejected").iterdir()
    assert json.loads(rejected.read_text())["k"] == expected


def test_empty_texts_are_counted(run, tmp_path, capsys):
    file = tmp_path / "rows.csv"
    file.write_text('id,text\n1,the cat\n2,\n3,""\n')
    assert run("--id", "id", file=file) == 0
    assert "finished: 3 rows, of which 2 have an empty text, " in capsys.readouterr().out
    assert json.loads((tmp_path / "out/_manifest.json").read_text())["empty"] == 2


@pytest.mark.parametrize(("pattern", "output"), [
    ("*.parquet", "."), ("**/*.parquet", "in/out"), ("**", "out"), ("linked/**/*.parquet", "out"),
    ("linked/**", "out"), ("link*/**/*", "out"), ("**/*.json", "out"), ("*/_rejected/*", "out")])
@pytest.mark.parametrize("scheme", ["", "file://"])
def test_parts_are_no_inputs(run, tmp_path, capsys, scheme, pattern, output):
    (tmp_path / "out").mkdir()
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked/out").symlink_to("../out")
    assert run("--keep", "id,text", output=output, file=f"{scheme}{tmp_path}/{pattern}") == 1
    assert "also matches what the job writes" in capsys.readouterr().err
    assert not any((tmp_path / "out").iterdir())


def test_a_part_under_any_name_is_no_input(run, tmp_path, capsys):
    assert run("--keep", "id,text", output=".", file=f"file://{tmp_path}/rows.*") == 0
    part = next(iter(parts(tmp_path).values()))
    (tmp_path / "link.parquet").symlink_to(part)
    for name in (part.name, "link.parquet"):
        assert run("--keep", "id,text", output=".", file=tmp_path / name) == 1
        assert f"such as {part.name}, so that the next run would read it" in capsys.readouterr().err


def test_prune_deletes_what_a_job_wrote_and_nothing_else(run, tmp_path, capsys):
    """Spark calls its files part-*, too."""
    foreign = {tmp_path / f"out/{name}": data for name, data in (
        ("part-00000-4f1c.snappy.parquet", (tmp_path / "rows.parquet").read_bytes()), ("part-1.jsonl", b"{}\n"),
        ("part-00000000-000000-0000000000000000", b""))}
    (tmp_path / "out").mkdir()
    for path, data in foreign.items():
        path.write_bytes(data)
    file = tmp_path / "out/part-00000-4f1c.snappy.parquet"
    assert run("--id", "id", file=file) == 0
    (tmp_path / "out/_manifest.json").unlink()
    write_rows(file, 20)
    foreign[file] = file.read_bytes()
    other = tmp_path / "out/part-00000000-000000-0000000000000000.parquet"
    shutil.copy(file, other)
    assert run("--id", "id", "--prune", file=file) == 1
    assert f"says that a job wrote it, so that --prune does not delete it; move {other.name}" in capsys.readouterr().err
    assert len(set(parts(tmp_path / "out")) - {path.name for path in foreign}) == 5 + 1
    other.unlink()
    assert run("--id", "id", "--prune", file=file) == 0
    assert all(path.read_bytes() == data for path, data in foreign.items())
    assert len(set(parts(tmp_path / "out")) - {path.name for path in foreign}) == 2


def test_prune_deletes_answers_of_requests_that_changed(run, tmp_path):
    file = tmp_path / "batch"
    write_batch(file, 3)
    assert run("--format", "openai", file=file) == 0
    before = parts(tmp_path / "out")
    (tmp_path / "out/_manifest.json").unlink()
    write_batch(file, 4)
    assert run("--format", "openai", "--prune", file=file) == 0
    assert not before.keys() & parts(tmp_path / "out").keys()


def test_rejected_rows_without_their_part_are_pruned(run, tmp_path, capsys):
    """A job that is killed may have written them before the part."""
    file = tmp_path / "rows.jsonl"
    file.write_text('{"text": "the cat"}\n{"text": null}\n')
    assert run(file=file) == 0
    next(iter(parts(tmp_path / "out").values())).unlink()
    (tmp_path / "out/_manifest.json").unlink()
    file.write_text('{"text": "the cat"}\n')
    assert run(file=file) == 1
    assert "holds 1 files of rejected rows of inputs that have changed" in capsys.readouterr().err
    assert run("--prune", file=file) == 0
    assert not any((tmp_path / "out/_rejected").iterdir())


def write_columns(folder, **files):
    """Write files of Parquet, or of JSON lines, with a text and a column k of one value each."""
    folder.mkdir()
    for name, column in files.items():
        if isinstance(column, str):
            (folder / f"{name}.jsonl").write_text(json.dumps({"text": "the cat", "k": column}))
        else:
            pq.write_table(pa.table({"text": ["the cat"] * len(column), "k": column}), folder / f"{name}.parquet")


@pytest.mark.parametrize(("one", "other"), [
    (pa.array([1]), "1"), (pa.array([1]), pa.array([1.5])), (pa.array([True]), pa.array(["a"])),
    (pa.array([1], pa.timestamp("s")), pa.array([1], pa.timestamp("us"))), (pa.array([[1]]), pa.array([1])),
    (pa.array([1], pa.uint64()), pa.array([1], pa.int64())), (pa.array([1]), pa.array([[None]]))], ids=str)
def test_columns_of_other_types_are_refused_before_the_first_row(run, tmp_path, capsys, one, other):
    """The parts would be written and verified, and could not be read as one table."""
    write_columns(tmp_path / "in", a=one, b=other)
    files = [*(tmp_path / "in").iterdir()]
    kinds = {path.name: pq.read_schema(path).field("k").type if path.suffix == ".parquet" else pa.string()
             for path in sorted(files)}
    words = " and ".join(f"{kind} in '{name}'" for name, kind in kinds.items())
    for options in (("--id", "k"), ("--keep", "k")):
        assert run(*options, file=tmp_path / "in/*") == 1
        assert f"column 'k' holds {words}, so that the parts would not be one table" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("one", "other", "kind"), [
    (pa.array([1], pa.int8()), pa.array([2], pa.int64()), pa.int64()),
    (pa.array([1], pa.uint8()), pa.array([2], pa.int16()), pa.int16()),
    (pa.array([1], pa.float32()), pa.array([2], pa.float64()), pa.float64()),
    (pa.array(["a"]), pa.array(["b"], pa.large_string()), pa.large_string()),
    (pa.array(["a"]), pa.array(["b"], pa.string_view()), pa.large_string()),
    (pa.array(["a"]).dictionary_encode(), "b", pa.string()),
    (pa.array(["a"], pa.large_string()), "b", pa.large_string()), (pa.nulls(1), pa.array([2]), pa.int64()),
    (pa.nulls(1), pa.array([["a"]]), pa.list_(pa.string())),
    (pa.array([[None]]), pa.array([["a"]]), pa.list_(pa.string()))], ids=str)
def test_columns_of_wider_types(run, tmp_path, one, other, kind):
    write_columns(tmp_path / "in", a=one, b=other)
    assert run("--keep", "k", file=tmp_path / "in/*") == 0
    found = {str(pq.read_schema(path).field("k").type) for path in parts(tmp_path / "out").values()}
    assert {name.replace("element", "item") for name in found} == {str(kind)}
    values = [*one.to_pylist(), *([other] if isinstance(other, str) else other.to_pylist())]
    assert sorted(map(str, pq.read_table(tmp_path / "out")["k"].to_pylist())) == sorted(map(str, values))
    assert run("--keep", "k", "--verify", file=tmp_path / "in/*") == 0


def test_a_wider_type_makes_parts_anew(run, tmp_path, capsys):
    """Without that, the parts that are there would keep the narrow type."""
    write_columns(tmp_path / "in", a=pa.array([1], pa.int8()))
    assert run("--keep", "k", file=tmp_path / "in/*") == 0
    write_columns(tmp_path / "more", b=pa.array([1], pa.int64()))
    (tmp_path / "more/b.parquet").rename(tmp_path / "in/b.parquet")
    assert run("--keep", "k", file=tmp_path / "in/*") == 1
    assert "--prune" in capsys.readouterr().err
    assert run("--keep", "k", "--prune", file=tmp_path / "in/*") == 0
    assert pq.read_table(tmp_path / "out")["k"].type == pa.int64()


def test_a_column_of_nulls_alone_is_rejected(run, tmp_path):
    write_columns(tmp_path / "in", a=pa.array([1]), b=pa.array([2]))
    pq.write_table(pa.table({"text": pa.nulls(1), "k": [2]}), tmp_path / "in/b.parquet")
    assert run("--id", "k", file=tmp_path / "in/*") == 0
    assert pq.read_table(tmp_path / "out")["k"].to_pylist() == [1]
    [rejected] = (tmp_path / "out/_rejected").iterdir()
    assert json.loads(rejected.read_text())["reason"] == "the text is null"


@pytest.mark.parametrize("options", [(), ("--id", "k"), ("--keep", "k")])
@pytest.mark.parametrize("name", ["a.parquet", "a.csv", "a.jsonl", "groups.parquet"])
def test_a_job_of_no_rows_has_all_columns(run, tmp_path, name, options):
    file = tmp_path / name
    table = pa.table({"text": pa.array([], pa.string()), "k": pa.array([], pa.int8())})
    if name.endswith("parquet"):
        pq.write_table(table, file)
    else:
        file.write_text("text,k\n" if name == "a.csv" else "")
    if name == "groups.parquet":
        with pq.ParquetWriter(file, table.schema) as writer:
            writer.write_table(table)
    assert run(*options, file=file) == 0
    found = pq.read_table(tmp_path / "out")
    assert len(found) == 0
    assert found.column_names == [*(["id"] if "--id" not in options else []), *(["k"] if options else []), "vector"]
    assert not options or found["k"].type == (pa.int8() if name.endswith("parquet") else pa.string())
    assert run(*options, "--verify", file=file) == 0


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


def test_a_sample_of_a_part_without_texts_and_with_copied_columns(run, tmp_path, capsys):
    pq.write_table(pa.table({"text": pa.array([None, None], pa.string()), "n": [1, 2]}), tmp_path / "nulls.parquet")
    options = ("--keep", "n")
    assert run(*options, file=tmp_path / "nulls.parquet") == 0
    assert run(*options, "--verify", "1", file=tmp_path / "nulls.parquet") == 0
    assert "Traceback" not in capsys.readouterr().err
