"""Test `engine embed` on images: the bits of `encode` from every format, broken images, resume, and what is refused."""

import base64
import csv
import json

import numpy as np
import pytest

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
pytest.importorskip("PIL")

from engine import Engine  # noqa: E402
from engine.cli.main import main  # noqa: E402

from ..tools.image_files import make_images  # noqa: E402
from ..tools.paths import IMAGES  # noqa: E402
from .prove import parts, same_parts  # noqa: E402

GOOD = ("rgb.png", "grey.jpg", "cmyk.jpg", "small.png", "rgb.png")
"""The images of rows 0, 2, 3, 5 and 6; the others are broken."""
ROWS = (0, 2, 3, 5, 6)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """Return paths of images, of which the second and the fifth are broken."""
    folder, images = tmp_path_factory.mktemp("pictures"), make_images()
    names = dict(zip(ROWS, GOOD, strict=True))
    for i in range(7):
        (folder / f"{i}.png").write_bytes(images[names[i]] if i in names else images["rgb.png"][:90])
    return [folder / f"{i}.png" for i in range(7)]


@pytest.fixture(scope="module")
def expected(pictures):
    return Engine.load(IMAGES / "vit").encode([pictures[i] for i in ROWS])


def vectors_of(folder):
    tables = pa.concat_tables([pq.read_table(path) for path in parts(folder).values()])
    return np.stack(tables["vector"].to_numpy()), tables


def rejected(folder):
    return [json.loads(line) for path in sorted((folder / "_rejected").iterdir())
            for line in path.read_text(encoding="utf-8").splitlines()]


def write_parquet(path, column):
    pq.write_table(pa.table({"n": list(range(7)), "image": column}), path)


def write_all(folder, pictures):
    """Write the images of rows in every form and format; return the files."""
    paths, contents = [*map(str, pictures)], [path.read_bytes() for path in pictures]
    mixed = [{"bytes": data, "path": None} if i % 2 else {"bytes": None, "path": path}
             for i, (path, data) in enumerate(zip(paths, contents, strict=True))]
    write_parquet(folder / "paths.parquet", pa.array(paths))
    write_parquet(folder / "bytes.parquet", pa.array(contents))
    write_parquet(folder / "large.parquet", pa.array(contents, pa.large_binary()))
    write_parquet(folder / "datasets.parquet", pa.array(mixed))
    with (folder / "rows.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("n", "image"), *enumerate(paths)])
    urls = [f"data:image/png;base64,{base64.b64encode(data).decode()}" for data in contents]
    for name, column in (("rows", paths), ("urls", urls)):
        lines = (json.dumps({"n": i, "image": image}) for i, image in enumerate(column))
        (folder / f"{name}.jsonl").write_text("\n".join(lines), encoding="utf-8")
    (folder / "rows.txt").write_text("\n".join(paths), encoding="utf-8")
    return sorted(folder.iterdir())


def test_every_format_gives_the_bits_of_encode(pictures, expected, tmp_path):
    (tmp_path / "in").mkdir()
    for file in write_all(tmp_path / "in", pictures):
        out, text = tmp_path / f"out {file.name}", file.suffix == ".txt"
        command = ["embed", str(IMAGES / "vit"), str(file), "-o", str(out), "--unit-rows", "3"]
        assert main([*command, *([] if text else ["--id", "n"])]) == 0
        vectors, table = vectors_of(out)
        assert np.array_equal(vectors, expected), file.name
        if not text:
            assert [int(n) for n in table["n"].to_pylist()] == [*ROWS]
        broken = rejected(out)
        assert len(broken) == 2
        if not text:
            assert [int(row["n"]) for row in broken] == [1, 4]
        of_path = "path" in file.name or file.name in ("rows.csv", "rows.jsonl", "rows.txt")
        start = f"({pictures[1]}): it cannot" if of_path else "it cannot be read as PNG: "
        assert broken[0]["reason"].startswith(start)


def test_a_stopped_job_goes_on_to_the_same_parts(pictures, tmp_path, capsys):
    write_parquet(tmp_path / "rows.parquet", pa.array([*map(str, pictures[:5]), None, ""]))
    command = ["embed", str(IMAGES / "vit"), str(tmp_path / "rows.parquet"), "--unit-rows", "2", "--id", "n"]
    assert main([*command, "-o", str(tmp_path / "whole")]) == 0
    assert main([*command, "-o", str(tmp_path / "stopped")]) == 0
    _, second, third, _ = parts(tmp_path / "stopped").values()
    second.unlink()
    third.unlink()
    assert main([*command, "-o", str(tmp_path / "stopped")]) == 0
    same_parts(tmp_path / "whole", tmp_path / "stopped")
    for more in ((), ("1",)):
        assert main([*command, "-o", str(tmp_path / "whole"), "--verify", *more]) == 0
    assert "right to the bit" in capsys.readouterr().out


def test_rows_without_an_image(pictures, tmp_path):
    images = [str(pictures[0]), None, "", str(tmp_path / "none.png"), 3, ["a"], "data:image/png;base64,!!",
              "data:image/png,abc", "https://example.org/a.png", "a\0b", {"bytes": None, "path": None}, str(tmp_path)]
    lines = [json.dumps({"image": image}) for image in images]
    (tmp_path / "rows.jsonl").write_text("\n".join(lines), encoding="utf-8")
    assert main(["embed", str(IMAGES / "vit"), str(tmp_path / "rows.jsonl"), "-o", str(tmp_path / "out")]) == 0
    assert len(vectors_of(tmp_path / "out")[0]) == 1
    reasons = [row["reason"] for row in rejected(tmp_path / "out")]
    assert reasons == [
        "the image is null", "the path of the image is empty",
        f"({tmp_path / 'none.png'}): there is no such file; give the path of an image",
        "the image is no path and no bytes but int: 3", "the image is no path and no bytes but list: ['a']",
        "the data: URL is no base64: Only base64 data is allowed",
        "the data: URL has no ;base64, in front of its data, and no other coding is read",
        "(https:/example.org/a.png): an address is never fetched; download it, and give the path or the bytes of the "
        "file",
        "('a\\x00b'): cannot be read: embedded null byte; give the path of an image", "the image is null",
        f"({tmp_path}): it is a folder; give its files, such as sorted(pathlib.Path('{tmp_path}').glob('*.jpg'))"]


def test_no_image_at_all(tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"image": null}\n', encoding="utf-8")
    for options in ((), ("--result", "classes")):
        out = tmp_path / f"out{len(options)}"
        assert main(["embed", str(IMAGES / "vit"), str(tmp_path / "rows.jsonl"), "-o", str(out), *options]) == 0
        [part] = parts(out).values()
        assert pq.read_table(part).num_rows == 0
        assert {"vector", "label"} & {*pq.read_table(part).column_names}


def test_labels_and_texts_of_a_model_of_both(pictures, tmp_path):
    clip, labels = Engine.load(IMAGES / "clip"), ["<17>", "<33>"]
    (tmp_path / "rows.csv").write_text("text,image\n" + "".join(f"<9>,{pictures[i]}\n" for i in ROWS), encoding="utf-8")
    command = ["embed", str(IMAGES / "clip"), str(tmp_path / "rows.csv")]
    assert main([*command, "--images", "-o", str(tmp_path / "images"), "--normalize", "--truncate-dim", "5"]) == 0
    given = [pictures[i] for i in ROWS]
    assert np.array_equal(vectors_of(tmp_path / "images")[0],
                          clip.encode(given, normalize_embeddings=True, truncate_dim=5))
    assert main([*command, "-o", str(tmp_path / "texts")]) == 0
    assert np.array_equal(vectors_of(tmp_path / "texts")[0], clip.encode(["<9>"] * 5))
    options = [part for label in labels for part in ("--candidate-label", label)]
    assert main([*command, "--images", "-o", str(tmp_path / "classes"), "--result", "classes", *options]) == 0
    table = pa.concat_tables([pq.read_table(path) for path in parts(tmp_path / "classes").values()])
    expected = clip.classify(given, candidate_labels=labels)
    assert table["label"].to_pylist() == [one["label"] for one in expected]
    assert table["score"].to_pylist() == [one["score"] for one in expected]


def test_jobs_that_are_refused(pictures, tmp_path, capsys):
    (tmp_path / "rows.csv").write_text(f"n,image\n1,{pictures[0]}\n", encoding="utf-8")
    pq.write_table(pa.table({"image": [1]}), tmp_path / "numbers.parquet")
    (tmp_path / "a.jpg").write_bytes(pictures[0].read_bytes())
    (tmp_path / "bare").mkdir()
    for file in (IMAGES / "vit").iterdir():
        if file.name != "preprocessor_config.json":
            (tmp_path / "bare" / file.name).write_bytes(file.read_bytes())
    vit, bert = str(IMAGES / "vit"), str(IMAGES.parent / "encoders" / "bert")
    for model, file, options, message in (
            (bert, "rows.csv", ("--images",), "--images: this model reads texts alone"),
            (vit, "rows.csv", ("--column", "picture"), "--column names the one with the images"),
            (vit, "rows.csv", ("--format", "openai"), "--format openai is for batches of texts"),
            (vit, "rows.csv", ("--result", "tokens"), "--result tokens is for texts; images have vectors or classes"),
            (vit, "rows.csv", ("--truncate-dim", "33"), "the vectors of this model have 32 dimensions"),
            (vit, "a.jpg", (), "is an image, and a job reads paths or bytes from a table"),
            (vit, "numbers.parquet", (), "holds int64, and not paths, bytes, or objects with both"),
            (str(IMAGES / "clip"), "rows.csv", ("--images", "--result", "classes"), "has no labels of its own for im"),
            (str(tmp_path / "bare"), "rows.csv", (), "no preprocessor_config.json")):
        assert main(["embed", model, str(tmp_path / file), "-o", str(tmp_path / "out"), *options]) != 0, options
        assert message in capsys.readouterr().err, options
