"""Folders and files that other tools leave: pointers of Git LFS, GLiNER, wordllama, model2vec without its name."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("tokenizers")

from engine import Engine, Generator, UnsupportedError, WeightsError, load_model, read_audio, save
from engine.base.errors import FileMissing, InputError
from engine.files.reading import naming, within
from engine.jobs.job import find_units
from engine.jobs.storage import find_inputs

from ..tools.golden_gguf import gguf_of
from ..tools.limited import outcome
from ..tools.module_folders import TYPES, copied, table, tokenizer_of, write_static, write_tensors
from ..tools.paths import ENCODERS
from ..tools.tiny_models import write_json, write_modules_json

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 90868376\n"
OPTIONS = {"backend": "reference", "threads": 1}
WORDS = "is a pointer of Git LFS, and not the file itself: run git lfs pull in its repository"


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "pytorch_model.bin", "tokenizer.json",
                                  "modules.json", "vocab.txt", "model.npz", "model.gguf"])
@pytest.mark.parametrize("memory", ["map", "copy"])
def test_pointers_of_git_lfs(tmp_path, name, memory):
    path = copied(tmp_path / "model", ENCODERS / "bert")
    tokenizer_of(path)
    if name == "pytorch_model.bin":
        (path / "model.safetensors").unlink()
    if name == "vocab.txt":
        (path / "tokenizer.json").unlink()
    (path / name).write_bytes(POINTER)
    load = Generator if name == "model.gguf" else Engine
    with pytest.raises(WeightsError, match=f"{name}: {WORDS}"):
        load.load(path / name if name.endswith(("npz", "gguf")) else path, memory=memory, **OPTIONS)


@pytest.mark.parametrize("name", ["a.wav", "a.mp3", "bytes"])
def test_recordings_that_are_pointers_of_git_lfs(tmp_path, name):
    (tmp_path / name).write_bytes(POINTER)
    with pytest.raises(WeightsError, match=WORDS):
        read_audio(POINTER if name == "bytes" else tmp_path / name)


@pytest.mark.parametrize("name", ["a.parquet", "a.txt", "a.csv", "a.jsonl"])
def test_rows_that_are_pointers_of_git_lfs(tmp_path, name):
    (tmp_path / name).write_bytes(POINTER)
    with pytest.raises(InputError, match=f"^{name} {WORDS}$"):
        find_units(find_inputs([str(tmp_path / name)]), None)


def test_a_recording_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"a\.wav: cannot be read: No such file or directory; give") as raised:
        read_audio(tmp_path / "a.wav")
    assert isinstance(raised.value, FileMissing)


def test_new_tokens_of_a_gguf_file_keep_their_first_space(tmp_path):
    """As in llama.cpp; every second piece begins with a space here, so that one of the results does."""
    pieces = [f"{'▁' * (i % 2)}{chr(97 + i)}" for i in range(58)]
    settings = {"model": "llama", "tokens": ["<unk>", "<s>", "</s>", *pieces], "scores": np.zeros(61, np.float32),
                "token_type": np.array([2, 3, 3, *[1] * 58], np.int32), "pre": None, "merges": None}
    data = gguf_of("llama", **{f"tokenizer.ggml.{key}": value for key, value in settings.items()})
    (tmp_path / "m.gguf").write_bytes(data)
    save(load_model(tmp_path / "m.gguf"), tmp_path / "m.npz")
    for name in ("m.gguf", "m.npz"):
        generator = Generator.load(tmp_path / name, **OPTIONS)
        assert load_model(tmp_path / name).decoder.text.bytes_alone     # as in llama.cpp, too
        found = []
        for first in range(3, 20):
            result = generator.generate([[1, first]], max_new_tokens=4)[0]
            plain = "".join([*settings["tokens"]][i].replace("▁", " ") for i in result.ids if i > 2)
            streamed = [piece.text for piece in generator.stream([1, first], max_new_tokens=4)]
            assert result.text == plain == "".join(streamed)
            found.append(plain)
        assert any(text.startswith(" ") for text in found)
        assert not all(text.startswith(" ") for text in found)


def test_an_error_names_its_file_once():
    for message in ("x.gguf: is wrong", "x.gguf/a: is wrong"):
        with pytest.raises(WeightsError, match=f"^{message}$"), within(Path("x.gguf")), naming(Path("x.gguf"), ""):
            raise WeightsError(message)
    with pytest.raises(WeightsError, match=r"^x\.gguf: y\.gguf: is wrong$"), within(Path("x.gguf")):
        raise WeightsError("y.gguf: is wrong")


def test_gliner(tmp_path):
    write_json(tmp_path / "gliner_config.json", {"model_name": "x"})
    with pytest.raises(UnsupportedError, match=r"gliner_config\.json: it describes a model of GLiNER"):
        Engine.load(tmp_path)


@pytest.mark.parametrize(("name", "words"), [
    ("params.json", "it describes the weights in the form of the model's makers"),
    ("config.yaml", "it describes a model of another library, such as pyannote.audio"),
    ("parakeet.nemo", "this is an archive of NVIDIA NeMo"),
])
def test_folders_of_other_libraries(tmp_path, name, words):
    (tmp_path / name).write_bytes(b"{}")
    with pytest.raises(UnsupportedError, match=f"^{tmp_path / name}: {words}; the engine reads the form of transf"
                                               if name.endswith("nemo") else f"^{tmp_path / name}: {words}"):
        Engine.load(tmp_path)
    if name.endswith("nemo"):
        with pytest.raises(UnsupportedError, match=f"^{tmp_path / name}: {words}"):
            Engine.load(tmp_path / name)


@pytest.mark.parametrize(("values", "library"), [
    ({"architecture": "resnet50", "num_classes": 1000, "pretrained_cfg": {"tag": "a1_in1k"}}, "timm"),
    ({"d_model": 384, "distribution_output": {"_target_": "uni2ts.distribution.MixtureOutput"}}, r"uni2ts \(Moirai\)"),
    ({"model": "pyannote.audio.models.segmentation.PyanNet"}, r"pyannote\.audio"),
])
def test_a_config_of_another_library(tmp_path, values, library):
    """No model_type would help; the message gives no such advice."""
    write_json(tmp_path / "config.json", values)
    write_tensors(tmp_path, other=table(1))
    with pytest.raises(UnsupportedError, match=rf"config\.json: there is no model_type; this is the configuration of a "
                                               rf"model of {library}, which the engine does not run$"):
        Engine.load(tmp_path)


def test_wordllama_has_no_config(tmp_path):
    expected = write_static(tmp_path / "expected", "float32")
    for name in ("tokenizer.json", "model.safetensors"):
        (tmp_path / "own").mkdir(exist_ok=True)
        shutil.copy(expected / name, tmp_path / "own")
    texts = ["Anna lives in Berlin.", "zzz"]
    found = Engine.load(tmp_path / "own", **OPTIONS).encode(texts)
    assert found.tobytes() == Engine.load(expected, **OPTIONS).encode(texts).tobytes()
    write_tensors(tmp_path / "own", other=table(1))
    with pytest.raises(WeightsError, match=r"no config\.json"):
        Engine.load(tmp_path / "own", **OPTIONS)


@pytest.mark.parametrize("told", ["embedding_dtype", "vocabulary_quantization", "mapping"])
def test_model2vec_without_its_name(tmp_path, told):
    """It leaves unknown words out, and StaticEmbedding does not."""
    path = write_static(tmp_path / "static", "model2vec mapping" if told == "mapping" else "model2vec")
    texts = ["Anna \u2603 lives", "\u2603"]
    expected = Engine.load(path, **OPTIONS).encode(texts)
    values = json.loads((path / "config.json").read_text())
    for name in ("model_type", "architectures"):
        del values[name]
    write_json(path / "config.json", values | ({} if told == "mapping" else {told: None}))
    assert Engine.load(path, **OPTIONS).encode(texts).tobytes() == expected.tobytes()
    # modules.json says whether vectors are scaled, and here it does not ask for that
    write_modules_json(path, (".", "sentence_transformers.models.StaticEmbedding"))
    found = Engine.load(path, **OPTIONS).encode(texts, normalize_embeddings=True)
    assert np.abs(found - expected).max() < 1e-6


def test_a_mapping_of_more_tokens_than_there_are(tmp_path):
    path = write_static(tmp_path / "static", "model2vec mapping")
    write_tensors(path, embeddings=np.ones((1, 2048), np.float32), mapping=np.zeros(1_000_000, np.uint8))
    assert "mapping has 1,000,000 places, and the tokenizer has " in outcome(Engine.load, path)


def test_a_number_of_401_digits(tmp_path):
    tokenizer_of(tmp_path)
    write_modules_json(tmp_path, ("", TYPES["SparseStaticEmbedding"]))
    write_json(tmp_path / "config_sentence_transformers.json", {"model_type": "SparseEncoder"})
    write_json(tmp_path / "config.json", {"path": "idf.json"})
    for number in (10**400, -(10**400)):
        write_json(tmp_path / "idf.json", {"[UNK]": number})
        with pytest.raises(WeightsError, match=r"idf\.json: the number of '\[UNK\]' is too large"):
            Engine.load(tmp_path, **OPTIONS)
