"""The blocks of README.md and the other documents run as they stand, and Python prints what its comments say.

The ```python blocks of one file run in their order, in one namespace and in an empty folder, so a block can use what
earlier ones made. `models/all-MiniLM-L6-v2.npz` is there as after `make demo`. Directly above a block that cannot run
here stands the line `<!-- not run: REASON -->`.

A comment behind a `print` has to begin with what is printed. One that says "rounded" or "about" is not compared.

In ```sh blocks, the lines that begin with `engine` run between them, with a model at the names FOLDER and MODEL. The
others build or install something. Here it is only checked that their targets and extras exist; `make documents` runs
pip and everything else in a clean environment.
"""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from engine import BackendUnavailable, Engine

from ..tools import minilm
from ..tools.coming_from import make_models
from ..tools.documents import NOT_RUN, ROOT, Block, blocks, commands, documents, named
from ..tools.encoders import load_encoder, save_encoder
from ..tools.head_models import write_folder
from ..tools.head_texts import sentence
from .clean import readme_commands

MODEL = "models/all-MiniLM-L6-v2.npz"
TEXTS = {
    "sentences.txt": "A kitten sleeps.\nInterest rates rose.\n",
    "pairs.tsv": "4.5\tA kitten sleeps.\tA cat is napping.\n0.2\tA kitten sleeps.\tInterest rates rose.\n"
                 "1.0\tA cat is napping.\tThey won the match.\n",
    "text.txt": "A kitten sleeps. Interest rates rose. They won the match. " * 60,
}
"""Files that the commands of the documents read."""

INEXACT = re.compile(r"\b(rounded|about)\b")

SCRIPTS = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])


def promised(line):
    """Return what the comment behind a `print` promises, or None where it promises nothing exact."""
    comment = line.partition("  # ")[2].strip()
    return comment if comment and not INEXACT.search(comment) else None


def spaced(text):
    """Return text with each run of spaces as one."""
    return " ".join(text.split())


def run(path, block, names, printed):
    """Run a block in the namespace `names`, and compare what it prints. `printed()` returns what was printed since."""
    for statement in ast.parse("\n" * (block.line - 1) + block.code).body:
        exec(compile(ast.Module([statement], []), str(path), "exec"), names)
        said = spaced(printed())
        expected = promised(block.code.splitlines()[statement.end_lineno - block.line])
        if said and expected is not None:
            where = f"{named(path)}, line {statement.end_lineno}"
            assert spaced(expected).startswith(said), f"{where} prints {said}, but its comment says {expected}"


def run_commands(path, block):
    """Run the commands of a ```sh block that begin with `engine`, as they stand."""
    for line, words in commands(block):
        if words[:2] == ["engine", "serve"]:
            serve(words)
        elif words[0] == "engine":
            done = subprocess.run(["bash", "-c", line], env=os.environ | {"PATH": SCRIPTS}, stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)  # fmt: skip
            assert done.returncode == 0, f"{named(path)}: {line}\n{done.stdout}"


def serve(words):
    """Start a server at a free port, wait until it serves, and stop it."""
    pytest.importorskip("uvicorn")
    with subprocess.Popen([*words, "--port", "0"], env=os.environ | {"PATH": SCRIPTS}, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert " is served at http" in process.stdout.readline()
        process.terminate()
        assert process.wait(60) == 0


def coming_from(folder):
    """Make the models of all libraries in a folder."""
    make_models(folder)
    return {}


def labelled(folder):
    """Make a classifier and files of labelled texts in a folder, and return texts with their labels."""
    classifier = Engine.load(write_folder(folder / "MODEL", "bert_classify"), threads=1)
    texts = [sentence(i, 4 + i % 9) for i in range(100)]
    labels = [found["label"] for found in classifier.classify(texts)]
    labels[::4] = labels[1::4]      # one in four is of another text
    rows = "".join(f"{label}\t{text}\n" for label, text in zip(labels, texts, strict=True))
    for name in ("labelled.tsv", "others.tsv", "another_kind.tsv"):
        (folder / name).write_text(rows, encoding="utf-8")
    (folder / "texts.txt").write_text("\n".join(texts[:3]) + "\n", encoding="utf-8")
    return {"texts": texts, "labels": labels}


def rows(folder):
    """Write a file of rows into a folder."""
    pq = pytest.importorskip("pyarrow.parquet")
    pa = pytest.importorskip("pyarrow")
    (folder / "in").mkdir()
    table = pa.table({"id": [0, 1], "text": ["A kitten sleeps.", "Interest rates rose."]})
    pq.write_table(table, folder / "in/a.parquet")
    (folder / "MODEL").symlink_to("../MODEL")
    return {}


PREPARED = {"coming-from.md": coming_from, "jobs.md": rows, "uncertainty.md": labelled}
"""Documents that need other models, with the functions that make them and return the names that their blocks use."""


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    """all-MiniLM-L6-v2 as one file, or None where there is none."""
    if not minilm.FOLDER.exists():
        return None
    path = tmp_path_factory.mktemp("documents") / "model.npz"
    save_encoder(load_encoder(minilm.FOLDER), path)
    return path


@pytest.mark.parametrize("path", documents(), ids=named)
def test_blocks_run(path, model, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    if model is not None:
        Path(MODEL).parent.mkdir()
        for link in (MODEL, "MODEL"):
            Path(link).symlink_to(model)
        Path("FOLDER").symlink_to(minilm.FOLDER)
    for name, text in TEXTS.items():
        Path(name).write_text(text, encoding="utf-8")
    names = {"__name__": "document"}
    if path.name in PREPARED:
        (tmp_path / path.stem).mkdir()
        monkeypatch.chdir(tmp_path / path.stem)
        names |= PREPARED[path.name](Path())
    for block in blocks(path.read_text(encoding="utf-8")):
        if block.language not in ("python", "sh") or block.reason:
            continue
        if model is None and re.search(f"{MODEL}|FOLDER|MODEL", block.code):
            pytest.skip(f"from line {block.line} on: {minilm.MISSING}")
        try:
            if block.language == "sh":
                run_commands(path, block)
            else:
                run(path, block, names, lambda: capsys.readouterr().out)
        except BackendUnavailable as error:
            pytest.skip(f"from line {block.line} on: {error}")


@pytest.mark.parametrize("path", documents(), ids=named)
def test_blocks_that_do_not_run_say_why(path):
    text = path.read_text(encoding="utf-8")
    found = list(blocks(text))
    assert all(block.reason != "" for block in found), "a reason is empty"
    excluded = sum(block.language in ("python", "sh") for block in found if block.reason)
    comments = len(NOT_RUN.findall(re.sub(r"`.*?`", "", text)))
    assert excluded == comments, "<!-- not run --> must stand directly above a ```python or ```sh block"
    others = [block.line for block in found if block.language not in ("python", "sh", "text")]
    assert not others, "write python, sh or text"


@pytest.mark.parametrize("path", documents(), ids=named)
def test_other_commands_are_there(path):
    makefile, project = ((ROOT / name).read_text(encoding="utf-8") for name in ("Makefile", "pyproject.toml"))
    for block in blocks(path.read_text(encoding="utf-8")):
        if block.language != "sh":
            continue
        for line, words in commands(block):
            if words[0] == "make":
                assert re.search(f"^{words[1]}:", makefile, re.MULTILINE), line
            elif words[:2] == ["pip", "install"]:
                extras = re.fullmatch(r"\.(?:\[([\w,]+)\])?", words[2])
                assert extras, line
                for extra in filter(None, (extras[1] or "").split(",")):
                    assert re.search(f"^{extra} = ", project, re.MULTILINE), line
            elif words[:2] == ["python", "-m"]:
                module = ROOT / words[2].replace(".", "/")
                assert module.with_suffix(".py").exists() or (module / "__main__.py").exists(), line
            else:
                assert words[0] == "engine" or block.reason, f"{line}: nothing runs or checks this command"


EXAMPLES = re.compile(r"`(python examples/[^`]+)`")


@pytest.mark.parametrize("command", EXAMPLES.findall((ROOT / "examples/README.md").read_text(encoding="utf-8")))
def test_examples_run(command, model, tmp_path):
    if model is None and "models/" in command:
        pytest.skip(minilm.MISSING)
    if "score_mods" in command:
        pytest.importorskip("numba")
    if "atom_mapping" in command:
        pytest.skip("needs RDKit and rxnmapper's model; tests/real_models/test_atom_mapping.py runs it")
    if "similar_molecules" in command:
        pytest.skip("needs annalog's model; tests/real_models/test_annalog.py runs it")
    if "sparse_search" in command:
        pytest.skip("needs splade-tiny; tests/heads/test_examples.py runs it")
    if model is not None:
        (tmp_path / "models").mkdir()
        (tmp_path / MODEL).symlink_to(model)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (tmp_path / "stsb-dev.tsv").write_text(TEXTS["pairs.tsv"], encoding="utf-8")
    subprocess.run(command, shell=True, cwd=tmp_path, env=os.environ | {"PATH": SCRIPTS}, check=True)


@pytest.mark.parametrize(("name", "lines"), [("README.md", 150), ("engine/README.md", 100)])
def test_readme_is_short(name, lines):
    assert len((ROOT / name).read_text(encoding="utf-8").splitlines()) <= lines


def test_documents_and_examples_import_from_the_package_alone():
    names = [(name, named(path)) for path in [*documents(), *(ROOT / "examples").glob("*.py")]
             for name in re.findall(r"(?m)^ *(?:from|import) (engine[\w.]*)", path.read_text(encoding="utf-8"))]
    assert len(names) > 15
    assert [entry for entry in names if entry[0] not in ("engine", "engine.ops", "engine.plot")
            and not entry[0].startswith("engine.adapters.")] == []


def test_make_documents_knows_every_command_of_the_readme():
    assert "make demo" in readme_commands(ROOT)


def test_how_blocks_are_read():
    text = ("a\n```python\nx = 1\n```\n<!-- not run: no GPU -->\n```python\ny\n```\n"
            "<!-- not run: -->\n```python\nz\n```\n```sh\nls\n```")
    assert list(blocks(text)) == [Block("python", 3, "x = 1\n", None), Block("python", 7, "y\n", "no GPU"),
                                  Block("python", 11, "z\n", ""), Block("sh", 14, "ls\n", None)]


def test_how_commands_are_read():
    block = Block("sh", 1, "engine info   # 'x\n\n# nothing\npip install '.[text]'\n", None)
    assert [words for _, words in commands(block)] == [["engine", "info"], ["pip", "install", ".[text]"]]


def test_a_command_that_fails_is_reported(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(AssertionError, match=r"(?s)README.md: engine info nowhere.*no such file"):
        run_commands(ROOT / "README.md", Block("sh", 1, "engine info nowhere\n", None))


@pytest.mark.parametrize(("code", "matches"), [
    ("print((1, 4))    # (1, 4), float32\n", True),
    ("print((1, 4))    # (1, 5)\n", False),
    ("print((1,\n       4))  # (1, 4)\n", True),
    ("x = 3  # anything\nprint(x)\n", True),
    ("print(0.123)  # about 0.12\n", True),
])
def test_what_is_printed_is_compared(code, matches, capsys):
    block = Block("python", 1, code, None)
    if matches:
        run(ROOT / "README.md", block, {}, lambda: capsys.readouterr().out)
    else:
        with pytest.raises(AssertionError, match=r"line 1 prints \(1, 4\), but"):
            run(ROOT / "README.md", block, {}, lambda: capsys.readouterr().out)
