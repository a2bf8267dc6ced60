"""Models by their names on the hub, from a server on this machine, through the real client."""

import errno
import gzip
import io
import logging
import pickle
import re
import shutil
import subprocess
import sys
import traceback
from contextlib import suppress
from pathlib import Path

import huggingface_hub
import numpy as np
import pytest
from huggingface_hub import constants, file_download

import engine
from engine import Engine, Generator, HubError, InputError, Reranker, Transcriber, UnsupportedError, WeightsError
from engine.adapters.sentence_transformers import SparseEncoder
from engine.cli.main import main
from engine.loading.hub import HubName, _Client, as_name
from engine.loading.load import open_source
from engine.loading.model_files import checksum

from ..tools.head_models import folder_of
from ..tools.hub_server import LARGE, TOKEN, environment, running
from ..tools.module_folders import write_router
from ..tools.paths import DECODERS, ENCODERS, FILES, ROOT
from ..tools.tiny_models import write_json

NAME = "org/tiny"
OPTIONS = {"backend": "reference", "threads": 1}
TEXTS = ["Anna lives in Berlin.", "a"]


@pytest.fixture(scope="module")
def server():
    with running() as hub:
        yield hub


@pytest.fixture
def hub(server, tmp_path, monkeypatch):
    """A hub with one model, and an empty cache, in an empty working folder."""
    server.__init__(server.url)
    server.add(NAME, folder_of("bert_classify"))
    server.repositories[NAME] |= {"onnx/model.onnx": b"o" * 99, "pytorch_model.bin": b"p", "README.md": b"r"}
    for name, value in {"ENDPOINT": server.url, "HF_HUB_CACHE": str(tmp_path / "cache"), "HF_HUB_OFFLINE": False,
                        "HUGGINGFACE_CO_URL_TEMPLATE": server.url + "/{repo_id}/resolve/{revision}/{filename}",
                        "HF_TOKEN_PATH": str(tmp_path / "token")}.items():
        monkeypatch.setattr(constants, name, value)
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setattr(file_download.time, "sleep", lambda seconds: None)
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    return server


@pytest.fixture
def offline(monkeypatch):
    return lambda value=True: monkeypatch.setattr(constants, "HF_HUB_OFFLINE", value)


def blobs(tmp_path):
    """Return the files of the cache that are whole, but for the lists and locks of the client."""
    return [path for path in (tmp_path / "cache").rglob("*") if path.parent.name == "blobs"
            and path.suffix != ".incomplete"]


def labels(loaded):
    return loaded.classify(TEXTS, top_k=None)


def test_a_name_loads_what_the_folder_holds_and_downloads_nothing_else(hub, capfd):
    loaded = Engine.load(NAME, **OPTIONS)
    assert labels(loaded) == labels(Engine.load(folder_of("bert_classify"), **OPTIONS))
    assert sorted(hub.asked_for()) == ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"]
    hub.requests.clear()
    assert labels(Engine.load(NAME, **OPTIONS)) == labels(loaded)
    assert hub.requests == [f"GET /api/models/{NAME}"]      # nothing but the question for the commit
    assert capfd.readouterr() == ("", "")                   # progress bars are for terminals


def test_every_class_loads_by_name(hub):
    hub.add("org/gpt2", DECODERS / "gpt2")
    hub.add("org/whisper", DECODERS / "whisper")
    hub.add("org/pairs", folder_of("bert_pairs"))
    assert isinstance(Generator.load("org/gpt2", **OPTIONS), Generator)
    assert isinstance(Reranker.load("org/pairs", **OPTIONS), Reranker)
    assert isinstance(engine.load("org/gpt2", revision=hub.commit("org/gpt2"), **OPTIONS), Generator)
    assert engine.load_model(NAME, revision="main").encoder is not None
    found = open_source("org/whisper")
    assert (found.kind, found.origin.name, found.origin.commit) == ("transcribe", "org/whisper",
                                                                    hub.commit("org/whisper"))
    with pytest.raises(UnsupportedError, match="tokenizer"):
        Transcriber.load("org/whisper", **OPTIONS)      # the golden model has no tokenizer


def test_offline_the_cache_is_enough_and_nobody_is_asked(hub, offline, caplog):
    expected = labels(Engine.load(NAME, **OPTIONS))
    hub.requests.clear()
    offline()
    assert labels(Engine.load(NAME, **OPTIONS)) == expected
    assert not hub.requests
    assert not caplog.records


def fetch_by_file(*names):
    """Fetch a model as transformers does, file by file."""
    for name in ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", *names):
        with suppress(huggingface_hub.utils.EntryNotFoundError):
            huggingface_hub.hf_hub_download(NAME, name)


@pytest.mark.parametrize("way", ["whole", "of an older client", "by file, with modules.json asked for"])
def test_a_cache_of_the_client_alone_loads_offline(hub, offline, tmp_path, way):
    hub.repositories[NAME][".gitattributes"] = b"g"
    if way.startswith("by file"):
        fetch_by_file("modules.json")
    else:
        huggingface_hub.snapshot_download(NAME)
    if way == "of an older client":                     # which keeps no lists of files
        shutil.rmtree(next(tmp_path.rglob("trees")))
    hub.requests.clear()
    offline()
    source = open_source(NAME)
    assert source.path.name == hub.commit(NAME)
    assert (source.path / "model.safetensors").is_symlink()
    assert labels(Engine.load(NAME, **OPTIONS)) == labels(Engine.load(folder_of("bert_classify"), **OPTIONS))
    assert not hub.requests


def test_a_part_that_another_library_fetched_is_not_taken_for_the_whole(hub, offline):
    fetch_by_file()
    offline()
    with pytest.raises(HubError, match=r"it is not known whether .* modules\.json, .* as it is: /") as raised:
        Engine.load(NAME)
    expected = labels(Engine.load(str(raised.value).rpartition(" ")[2], **OPTIONS))
    offline(False)
    assert labels(Engine.load(NAME, **OPTIONS)) == expected     # the cache then knows that there is none
    offline()
    assert labels(Engine.load(NAME, **OPTIONS)) == expected


def test_offline_without_a_copy(hub, offline):
    offline()
    words = (f"{NAME}: no such file or folder; and as the name of a model on the hub: HF_HUB_OFFLINE is set, so the "
             "hub is not asked, and the cache has no complete copy of it: it has no file of it. Load it once where the "
             f"hub can be reached and HF_HUB_OFFLINE is not set; or run engine fetch {NAME} there, copy the folder "
             "that it prints here (cp -rL), and pass the path of the copy")
    with pytest.raises(HubError, match=f"^{re.escape(words)}$"):
        Engine.load(NAME)
    assert not hub.requests


def test_offline_with_a_part_of_the_model(hub, offline):
    huggingface_hub.snapshot_download(NAME, allow_patterns=["model.safetensors", "config.json"])
    offline()
    with pytest.raises(HubError, match=r"no complete copy of it: tokenizer_config.json of commit [0-9a-f]{40} is not"):
        Engine.load(NAME)


@pytest.mark.parametrize(("name", "revision", "words"), [
    ("org/tini", None, "shows no model of the name org/tini; check the name, and if the model is private, log in with "
     "hf auth login, or set HF_TOKEN"),
    (NAME, "v9", f"{NAME} has no revision 'v9'; a revision is a branch"),
    ("org/a--b", None, "org/a--b is not a name that the hub allows"),
])
def test_wrong_names_and_revisions(hub, name, revision, words):
    with pytest.raises(HubError, match=rf"^{name}: no such file or folder; and as the name of a model .*{words}"):
        Engine.load(name, revision=revision)


@pytest.mark.parametrize(("kind", "words"), [
    ("gated", f"{NAME} is gated: ask for access at http://127.*/{NAME}, then log in with hf auth login, or set HF_TOK"),
    ("private", f"shows no model of the name {NAME}; check the name, and if the model is private, log in"),
])
def test_models_that_not_everybody_may_read(hub, monkeypatch, kind, words):
    getattr(hub, kind).add(NAME)
    with pytest.raises(HubError, match=words):
        Engine.load(NAME)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert labels(Engine.load(NAME, **OPTIONS))


def test_a_refusal_without_a_reason(hub):
    hub.status = 403
    with pytest.raises(HubError, match=rf"refuses access to {NAME} \(HTTP 403\)"):
        Engine.load(NAME)


def test_a_transfer_that_is_cut_once_goes_on_where_it_ended(hub):
    cuts = [True]
    hub.cut = lambda blob: bool(cuts and cuts.pop())
    assert labels(Engine.load(NAME, **OPTIONS)) == labels(Engine.load(folder_of("bert_classify"), **OPTIONS))
    assert not cuts


def test_a_transfer_that_is_cut_every_time_leaves_nothing_half_written(hub, tmp_path, offline):
    weights = hub.repositories[NAME]["model.safetensors"]
    assert len(weights) > LARGE
    hub.cut = lambda blob: True
    with pytest.raises(HubError, match=rf"{NAME} could not be fetched from {hub.url} \(RemoteProtocolError: "):
        Engine.load(NAME)
    assert blobs(tmp_path)
    assert not any(path.stat().st_size in range(LARGE + 1, len(weights)) for path in blobs(tmp_path))
    offline()
    with pytest.raises(HubError, match=r"no complete copy of it: model.safetensors of commit"):
        Engine.load(NAME)
    offline(False)
    hub.cut = lambda blob: False
    assert labels(Engine.load(NAME, **OPTIONS)) == labels(Engine.load(folder_of("bert_classify"), **OPTIONS))


class _FullDisk(io.BufferedWriter):
    def write(self, data):
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk(hub, tmp_path, monkeypatch):
    get = file_download.http_get

    def get_to_full_disk(url, temp_file, **options):
        return get(url, _FullDisk(temp_file.raw) if "/blobs/" in url else temp_file, **options)

    with monkeypatch.context() as patch:
        patch.setattr(file_download, "http_get", get_to_full_disk)
        with pytest.raises(HubError, match=rf"there is no space left for {NAME} in {tmp_path}/cache; free some"):
            Engine.load(NAME)
    assert all(path.stat().st_size <= LARGE for path in blobs(tmp_path))
    assert labels(Engine.load(NAME, **OPTIONS))


def test_a_cache_that_cannot_be_written(hub, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(HubError, match=rf"the cache {tmp_path}/file/cache cannot be written \(Not a directory\)"):
        Engine.load(NAME)


@pytest.mark.parametrize("down", ["503", "no server"])
def test_a_hub_that_is_down(hub, caplog, monkeypatch, down):
    known = labels(Engine.load(NAME, **OPTIONS))
    hub.add("org/other", folder_of("bert_classify"))
    if down == "503":
        hub.status = 503
    else:
        monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    reason = "HTTP 503" if down == "503" else "ConnectError: .*"
    with caplog.at_level(logging.WARNING, "engine"):
        assert labels(Engine.load(NAME, **OPTIONS)) == known
    assert re.fullmatch(rf"{NAME} could not be fetched from http://127.0.0.1:\d+ \({reason}\); commit "
                        rf"{hub.commit(NAME)} is loaded from the cache", caplog.messages[-1])
    with pytest.raises(HubError, match=rf"\({reason}\), and the cache has no complete copy of it: it has no file"):
        Engine.load("org/other")


def test_a_mistyped_path_asks_nobody(hub):
    Path("models").mkdir()
    with pytest.raises(WeightsError, match=r"^models/MiniLM: no such file or folder, though models is there, so this "
                                           r'is read as a path .* say revision="main"; on the command line, --rev'):
        Engine.load("models/MiniLM")
    with pytest.raises(WeightsError, match=r"^MiniLM: no such file .* A name on the hub has the form org/name: sent"):
        Engine.load("MiniLM")
    with pytest.raises(WeightsError, match="the name of a task; a model is loaded by its own path alone"):
        Engine.load("zero-shot-classification")
    for path in ("org/tiny@v1", "https://huggingface.co/org/tiny/tree/v1"):
        with pytest.raises(WeightsError, match=r"say 'org/tiny', with revision='v1', or --revision on the command li"):
            Engine.load(path)
    for path in (Path(NAME), f"./{NAME}", f"{NAME}/", "org/model.gguf", "a/b/c", "/org/name", "~/name"):
        with pytest.raises(WeightsError, match=r"no such file or folder; expected an \.npz, .*Hugging Face hub$"):
            Engine.load(path)
    assert not hub.requests


@pytest.mark.parametrize("revision", ["..", "/tmp/v1", "a//b", "a/", "a/../b", "a..b", "a b", "a\\b", "a\n", "v:1"])
def test_revisions_that_are_no_refs(hub, revision):
    """The cache has a file of the name of a revision."""
    with pytest.raises(InputError, match=rf"whose parts are never empty, .*, not {re.escape(repr(revision))}"):
        Engine.load(NAME, revision=revision)
    assert not hub.requests


@pytest.mark.parametrize(("key", "value", "words"), [
    ("ETag", '"../../../../outside"', "with the ETag '../../../../outside', which is no name of a file in the cache"),
    ("X-Linked-Etag", '"/outside"', "with the ETag '/outside'"), ("ETag", '".."', "with the ETag '..'"),
    ("X-Repo-Commit", "../../../outside", "with the commit '../../../outside', and a commit is 40 hexadecimal digits"),
    ("sha", "../../../../outside", "with the commit '../../../../outside'"), ("sha", None, "with the commit None"),
    ("siblings", [{"rfilename": 5}], "lists a file 5, which is no path"),
    ("siblings", [{"rfilename": "../outside.json"}], "lists a file '../outside.json'"),
    ("siblings", [{"rfilename": "/outside.json"}], "lists a file '/outside.json'")])
def test_what_a_hub_answers_stays_in_the_cache(hub, tmp_path, key, value, words):
    hub.wrong[key] = value
    with pytest.raises(HubError, match=f": the hub .*{re.escape(words)}"):
        Engine.load(NAME)
    assert not [path for path in tmp_path.rglob("*") if path.name.startswith("outside")]
    assert {path.name for path in tmp_path.iterdir()} <= {"cache", "empty"}


def test_the_commit_of_a_file_that_is_not_there(hub, tmp_path):
    """The library notes in the cache that a commit has no file of this name."""
    expected = labels(Engine.load(NAME, **OPTIONS))
    hub.wrong["X-Repo-Commit"] = "../../../../outside"
    with pytest.raises(HubError, match=r"with the commit '\.\./"):
        _Client(HubName(NAME), None).call(huggingface_hub.hf_hub_download, "none.json")
    assert {path.name for path in tmp_path.iterdir()} <= {"cache", "empty"}
    hub.wrong.clear()
    assert labels(Engine.load(NAME, **OPTIONS)) == expected


def test_a_config_that_unpacks_beyond_its_size(hub, tmp_path):
    hub.packed["config.json"] = gzip.compress(bytes(50_000_000))
    size = len(hub.repositories[NAME]["config.json"])
    with pytest.raises(HubError, match=rf"sends more than the {size} bytes that 'config.json' has"):
        Engine.load(NAME)
    hub.packed["config.json"] = gzip.compress(hub.repositories[NAME]["config.json"])
    assert labels(Engine.load(NAME, **OPTIONS)) == labels(Engine.load(folder_of("bert_classify"), **OPTIONS))


@pytest.mark.parametrize(("user", "status"), [
    *(("user:SECRET", status) for status in (302, 401, 403, 404, 429, 500, 503, None)), ("SECRET", 503),
    ("user:SECRET/SECRET", None)])
def test_secrets_of_the_address_of_the_hub_are_hidden(hub, monkeypatch, caplog, user, status):
    for name in ("ENDPOINT", "HUGGINGFACE_CO_URL_TEMPLATE"):
        address = getattr(constants, name)
        monkeypatch.setattr(constants, name, address.replace("://", f"://{user}@"))
    if status is None:
        monkeypatch.setattr(constants, "ENDPOINT", f"http://{user}@127.0.0.1:9")
    hub.status = status
    with pytest.raises(HubError) as raised:
        Engine.load(NAME)
    assert "SECRET" not in "".join(traceback.format_exception(raised.value))
    assert "SECRET" not in "".join(record.getMessage() for record in caplog.records if record.name == "engine")


def test_a_path_that_exists_wins_and_has_no_revision(hub):
    shutil.copytree(folder_of("bert_pairs"), NAME)
    assert Engine.load(NAME, **OPTIONS).heads != Engine.load(folder_of("bert_classify"), **OPTIONS).heads
    with pytest.raises(InputError, match=f"revision is for the name of a model on the hub, and '{NAME}' is a path"):
        Engine.load(NAME, revision="main")
    with pytest.raises(InputError, match="and 'tiny' is not of the form org/name; leave out revision='main'"):
        Engine.load("tiny", revision="main")
    with pytest.raises(InputError, match="revision must be a branch, a tag or a commit, or None, not 5"):
        Engine.load("org/other", revision=5)
    assert not hub.requests


def test_a_revision_says_that_it_is_a_name(hub):
    Path("org").mkdir()
    assert labels(Engine.load(NAME, revision="main", **OPTIONS))


def test_a_commit_stays_and_main_moves(hub):
    old, first = hub.commit(NAME), labels(Engine.load(NAME, **OPTIONS))
    hub.add(NAME, folder_of("bert_several"))
    second = Engine.load(NAME, **OPTIONS)
    assert labels(second) != first
    hub.requests.clear()
    loaded = Engine.load(NAME, revision=old, **OPTIONS)
    assert labels(loaded) == first
    assert not hub.requests                             # a commit that is in the cache makes none
    assert labels(pickle.loads(pickle.dumps(second))) == labels(second)
    assert not hub.requests                             # a pickle has the commit


def test_the_folders_of_modules_come_too(hub, tmp_path):
    hub.add("org/router", write_router(tmp_path / "router", "static query"))
    hub.repositories["org/router"] |= {"1_Unused/config.json": b"{}", "0_Router/onnx/model.onnx": b"o"}
    found, local = (Engine.load(path, **OPTIONS) for path in ("org/router", tmp_path / "router"))
    assert np.array_equal(found.encode_query(TEXTS), local.encode_query(TEXTS))
    assert not any("nused" in file or "onnx" in file for file in hub.asked_for())


def test_files_that_are_a_model_each(hub, tmp_path):
    model = (FILES / "small.gguf").read_bytes()
    hub.repositories |= {"org/one": {"config.json": b"{}", "q.gguf": model},
                         "org/many": {"a.gguf": model, "b/q.gguf": b""},
                         "org/parts": {"m-00001-of-00002.gguf": b"1", "m-00002-of-00002.gguf": b"2"},
                         "org/onnx": {"config.json": b"{}", "onnx/model.onnx": b""}}
    for name in ("org/one", "org/many/a.gguf"):
        found = open_source(name)
        assert found.path.read_bytes() == model
        assert open_source(found.address[0], revision=found.address[1]).path == found.path
    with pytest.raises(HubError, match=r"has 2 files that are a model each; choose one, such as org/many/a\.gguf: "
                                       r"a\.gguf, b/q\.gguf"):
        open_source("org/many")
    with pytest.raises(HubError, match=r"org/many has no file c\.gguf; it has a\.gguf, b/q\.gguf"):
        open_source("org/many/c.gguf")
    with pytest.raises(HubError, match=r"has no weights that the engine reads, .*; it has config.json, onnx/model"):
        open_source("org/onnx")
    with pytest.raises(WeightsError, match=r"m-00001-of-00002\.gguf: .*"):
        engine.load_model("org/parts")
    assert "m-00002-of-00002.gguf" in hub.asked_for()


def test_what_cannot_run_is_refused_before_its_weights_come(hub):
    hub.repositories |= {
        "org/unknown": {"config.json": b'{"model_type": "mamba"}', "model.safetensors": b"w"},
        "org/adapter": {"adapter_config.json": b'{"peft_type": "LORA"}', "adapter_model.safetensors": b"w"}}
    with pytest.raises(UnsupportedError, match=r"org/unknown/config.json: .*mamba"):
        Engine.load("org/unknown")
    with pytest.raises(UnsupportedError, match=r"org/adapter: adapter_config.json describes an adapter of PEFT"):
        Engine.load("org/adapter")
    hub.repositories["org/gliner"] = {"gliner_config.json": b"{}", "pytorch_model.bin": b"w"}
    with pytest.raises(UnsupportedError, match=r"org/gliner/gliner_config.json: .* a model of GLiNER"):
        Engine.load("org/gliner")
    assert hub.asked_for() == ["config.json", "adapter_config.json"]


def test_without_the_client(hub, monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(HubError, match=r"needs the package huggingface_hub, which comes with tokenizers .*; run pip"):
        Engine.load(NAME)


@pytest.mark.parametrize(("path", "expected"), [
    ("intfloat/e5-small-v2", HubName("intfloat/e5-small-v2")), ("a/b/c/d.gguf", HubName("a/b", "c/d.gguf")),
    ("a/b.c/d.npz", HubName("a/b.c", "d.npz")), ("a/b.npz", None), ("a/b/c", None), ("a", None), ("a/.b", None),
    ("../b", None), ("a/b ", None), ("a\\b/c", None), (Path("a/b"), None)])
def test_what_is_a_name(path, expected):
    assert as_name(path) == expected


def test_the_command_line(hub, tmp_path, capsys):
    assert main(["fetch", NAME]) == 0
    folder = Path(capsys.readouterr().out.strip())
    assert folder.name == hub.commit(NAME)
    assert main(["info", NAME, "--revision", "main"]) == 0
    shown = capsys.readouterr().out
    assert f"{NAME}, commit {folder.name}\n" in shown
    assert checksum(folder) == checksum(folder_of("bert_classify")) in shown
    Path("texts").write_text("\n".join(TEXTS))
    assert main(["classify", NAME, "texts", "--backend", "reference"]) == 0
    assert capsys.readouterr().out.count("\n") == 2
    assert main(["classify", NAME, "texts", "--revision", "v9"]) == 1
    assert "has no revision 'v9'" in capsys.readouterr().err
    for wrong, words in ((["fetch", "tiny"], "'tiny' is no name of a model on the hub; expected org/name"),
                         (["fetch", NAME, "-o", "m.npz"], "add --packed"),
                         (["fetch", NAME, "--long-context"], "add --packed"),
                         (["fetch", NAME, "--packed", "--long-context"], "--long-context is for language models"),
                         (["fetch", NAME, "--packed", "-o", "m.bin"], "must be named *.npz")):
        assert main(wrong) == 1
        assert words in capsys.readouterr().err


def test_a_packed_file_beside_the_model(hub, capsys):
    pytest.importorskip("engine.backends.cpu.native.native")
    assert main(["fetch", NAME, "--packed"]) == 0
    path = Path(capsys.readouterr().out.strip())
    assert re.fullmatch(rf"{hub.commit(NAME)}/tiny-\w+\.npz", path.relative_to(path.parents[1]).as_posix())
    assert labels(Engine.load(path, threads=1)) == labels(Engine.load(NAME, backend="cython", threads=1))
    assert main(["fetch", NAME, "--packed", "--precision", "int8", "-o", "own.npz"]) == 0
    assert capsys.readouterr().out == "own.npz\n"
    assert Engine.load("own.npz", threads=1).precision == "int8"


def test_two_processes_at_once_by_the_variables_of_the_hub(hub, tmp_path):
    code = f"from engine.loading.load import find_model; print(find_model({NAME!r})[0])"
    command, options = [sys.executable, "-c", code], {"cwd": ROOT, "text": True, "stdout": subprocess.PIPE}
    both = [subprocess.Popen(command, env=environment(hub, tmp_path / "home"), **options) for _ in range(2)]
    paths = {process.communicate(timeout=300)[0].strip() for process in both}
    assert [process.returncode for process in both] == [0, 0]
    [path] = paths
    assert path == str(tmp_path / "home/hub/models--org--tiny/snapshots" / hub.commit(NAME))
    assert checksum(Path(path)) == checksum(folder_of("bert_classify"))


def test_the_weights_come_last(hub, tmp_path):
    write_json(tmp_path / "index", {"weight_map": {"a": "x-00001-of-00001.safetensors"}})
    shutil.copytree(ENCODERS / "bert", tmp_path / "split")
    hub.add("org/split", tmp_path / "split")
    weights = hub.repositories["org/split"].pop("model.safetensors")
    hub.repositories["org/split"] |= {"model.safetensors.index.json": (tmp_path / "index").read_bytes(),
                                      "x-00001-of-00001.safetensors": weights}
    assert Engine.load("org/split", **OPTIONS).config.family == "bert"
    assert hub.asked_for()[-1] == "x-00001-of-00001.safetensors"


def test_a_sparse_encoder_compares_as_the_repository_says(hub, tmp_path):
    hub.add("org/sparse", write_router(tmp_path / "router", "sparse query"))    # which states "cosine"
    assert SparseEncoder("org/sparse").similarity_fn_name == "cosine"
