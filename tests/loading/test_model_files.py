"""The table of files that the engine reads lists what loading opens, for every kind of folder."""

import json
import os
import shutil
from pathlib import Path

import pytest

from engine import EngineError, WeightsError, load_model
from engine.files.folder import ModelFolder
from engine.loading.load import open_source
from engine.loading.model_files import checksum, files_read
from engine.loading.source import CLASS_OF_KIND

from ..tools.chats import tokenizer_json
from ..tools.head_models import write_folder
from ..tools.late_folders import CASES, write_late
from ..tools.m3_folders import folder_of_m3
from ..tools.module_folders import ROUTERS, STATICS, write_chain, write_router, write_static
from ..tools.paths import CTRANSLATE2, DECODERS, ENCODERS, IMAGES, LANGUAGE_TOKENIZERS, MARIAN_TOKENIZER, TOKENIZERS
from ..tools.tiny_models import write_json


def joined(folder, *sources):
    """Write a folder with the files of several."""
    for source in sources:
        shutil.copytree(source, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("expected*"))
    return folder


def split(folder):
    """Write a model whose weights lie in a part with an index."""
    joined(folder, ENCODERS / "bert")
    data = (folder / "model.safetensors").read_bytes()
    names = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")]).keys() - {"__metadata__"}
    (folder / "model.safetensors").rename(folder / "part.safetensors")
    write_json(folder / "model.safetensors.index.json", {"weight_map": dict.fromkeys(names, "part.safetensors")})
    return folder


def setfit(folder):
    (joined(folder, ENCODERS / "bert") / "model_head.pkl").write_bytes(b"no pickle")
    return folder


def tokens_by_file(folder):
    """Write the query side of SPLADE models with a file of numbers by token."""
    part = write_router(folder, "sparse query") / "0_Router" / "query_0_SparseStaticEmbedding"
    (part / "model.safetensors").unlink()
    write_json(part / "config.json", {"path": "idf.json"})
    write_json(part / "idf.json", {"the": 0.5})
    return folder


def chat(folder):
    """A language model with two templates of a chat."""
    joined(folder, DECODERS / "llama")
    (folder / "tokenizer.json").write_bytes(tokenizer_json("bytes"))
    (folder / "chat_templates").mkdir()
    for name in ("chat_template", "chat_templates/tool_use"):
        (folder / f"{name}.jinja").write_text("{{ messages }}", encoding="utf-8")
    return folder


FOLDERS = {
    **{name: lambda folder, name=name: joined(folder, ENCODERS / name)
       for name in ("bert", "jina_v3", "clip_own", "wav2vec2_base")},
    **{name: lambda folder, name=name: joined(folder, IMAGES / name) for name in ("vit", "siglip")},
    **{name: lambda folder, name=name: joined(folder, DECODERS / name) for name in ("t5", "whisper", "reranker")},
    "marian": lambda folder: joined(folder, MARIAN_TOKENIZER, DECODERS / "marian"),
    "marian of two vocabularies": lambda folder: joined(folder, MARIAN_TOKENIZER, DECODERS / "marian_own"),
    "m2m_100": lambda folder: joined(folder, LANGUAGE_TOKENIZERS / "m2m_100", DECODERS / "m2m_100"),
    "wordpiece": lambda folder: joined(folder, ENCODERS / "bert", TOKENIZERS / "bert_uncased"),
    "pairs of bytes": lambda folder: joined(folder, ENCODERS / "roberta", TOKENIZERS / "roberta"),
    "chat": chat,
    "ctranslate2": lambda folder: joined(folder, CTRANSLATE2 / "plain"),
    "heads": lambda folder: write_folder(folder, "bert_pairs"),
    "bge_m3": lambda folder: joined(folder, folder_of_m3()),
    "split": split,
    "setfit": setfit,
    "tokens by file": tokens_by_file,
    **{f"chain {seed}": lambda folder, seed=seed: write_chain(folder, seed) for seed in (0, 4, 7)},
    **{name: lambda folder, name=name: write_router(folder, name) for name in ROUTERS},
    **{name: lambda folder, name=name: write_static(folder, name) for name in STATICS[::4]},
    "late": lambda folder: write_late(folder, next(iter(CASES))),
}
NOT_OF_THE_ENGINE = ("onnx/model.onnx", "openvino/config.json", "tf_model.h5", "flax_model.msgpack", "README.md",
                     "preprocessor_config.json", "0_Other/model.safetensors", "rust_model.ot")

OF_TRAINING = ("config_sentence_transformers.json", "sentence_bert_config.json")


def touched(folder, monkeypatch):
    """Return the files in a folder that loading it for every kind of use opens, or looks for and finds."""
    found = set()

    def noting(call):
        def noted(path, *args, **options):
            if isinstance(path, (str, Path)) and Path(path).is_relative_to(folder):
                found.add(Path(path))
            return call(path, *args, **options)
        return noted

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", noting(os.open))
        patch.setattr(os, "stat", noting(os.stat))
        for kind in CLASS_OF_KIND:
            try:
                source = open_source(folder)
                source.answers()
                load_model(source, kind=kind)
            except EngineError:
                pass
    return {path.relative_to(folder).as_posix() for path in found if path.is_file()}


@pytest.mark.filterwarnings("ignore:.*of skiplist_words:UserWarning")
@pytest.mark.parametrize("name", FOLDERS)
def test_the_table_of_files_is_what_loading_reads(tmp_path, monkeypatch, name):
    folder = FOLDERS[name](tmp_path / "model")
    for other in NOT_OF_THE_ENGINE:
        (folder / other).parent.mkdir(exist_ok=True)
        (folder / other).write_bytes(b"{}")
    files = files_read(ModelFolder(folder))
    assert len(files) == len(set(files))
    # Dropout does nothing, and settings of sentence-transformers beside a reranker are those of its training.
    unread = {file for file in files if "Dropout" in file or (name == "reranker" and file in OF_TRAINING)}
    assert set(files) - unread == touched(folder, monkeypatch)


def test_weights_come_last(tmp_path):
    assert files_read(ModelFolder(split(tmp_path / "split")))[-2:] == ["model.safetensors.index.json",
                                                                       "part.safetensors"]


def test_an_index_that_leaves_the_folder(tmp_path):
    folder = split(tmp_path / "split")
    write_json(folder / "model.safetensors.index.json", {"weight_map": {"a": "../part.safetensors"}})
    with pytest.raises(WeightsError, match=r"index\.json: '\.\./part\.safetensors' is not the name"):
        files_read(ModelFolder(folder))


def test_a_checksum_is_of_the_contents_that_are_read(tmp_path):
    first, copy = split(tmp_path / "a"), split(tmp_path / "b")
    (copy / "README.md").write_text("Read by nobody.")
    known = checksum(first)
    assert len(known) == 64
    assert checksum(copy) == known
    data = bytearray((copy / "part.safetensors").read_bytes())
    data[-1] ^= 1
    (copy / "part.safetensors").write_bytes(data)
    assert checksum(copy) != known
    shutil.copy(first / "part.safetensors", tmp_path / "a.gguf")
    shutil.copy(first / "part.safetensors", tmp_path / "b.gguf")
    assert checksum(tmp_path / "a.gguf") == checksum(tmp_path / "b.gguf") != known
