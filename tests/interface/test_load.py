"""`engine.load` returns the object that the files ask for, and each class refuses the others' models by name."""

import json
import os
import pickle
import shutil
from dataclasses import replace

import numpy as np
import pytest

import engine
from engine import (
    Engine,
    Generator,
    InputError,
    Reranker,
    Transcriber,
    UnsupportedError,
    WeightsError,
    load_model,
    save,
)
from engine.interface.load import SERVES
from engine.loading import load as loading
from engine.loading.source import CLASS_OF_KIND

from ..tools.encoders import TRANSLATES
from ..tools.golden_gguf import gguf_of
from ..tools.module_folders import write_modules
from ..tools.paths import CTRANSLATE2, DECODERS, ENCODERS, FILES
from ..tools.speech import timed
from ..tools.tiny_models import write_json
from ..tools.tiny_text import ids, tiny_text


def found(name):
    """Return the path of a golden model: an encoder, a generating one after "generating/", or a file."""
    folder, _, own = name.rpartition("/")
    if name.endswith(".gguf"):
        return FILES / name
    return (DECODERS if folder or name == "reranker" else ENCODERS) / own


def with_tokenizer(model):
    """Return a model with a tiny tokenizer."""
    return model.map(lambda part: replace(part, text=tiny_text()))


OPTIONS = {"backend": "reference", "threads": 1}
SERVED = [
    ("bert", Engine), ("t5_own", Engine), ("whisper_model", Engine), ("vit_own", Engine), ("reranker", Reranker),
    ("generating/bart", Generator), ("generating/t5", Generator), ("generating/qwen3", Generator),
    ("generating/gpt2", Generator),
]  # fmt: skip


@pytest.mark.parametrize(("name", "served"), SERVED, ids=[name for name, _ in SERVED])
def test_the_files_decide(name, served):
    assert type(engine.load(found(name), **OPTIONS)) is served


@pytest.mark.parametrize(("name", "kind", "served"), [
    ("generating/t5", "encode", Engine), ("generating/bart", "encode", Engine), ("reranker", "rank", Reranker),
    ("generating/whisper", "encode", Engine), ("generating/qwen3", "encode", Engine),
    ("reranker", "generate", Generator), ("mt5_whole", "generate", Generator),
])  # fmt: skip
def test_the_caller_decides(name, kind, served):
    assert type(engine.load(found(name), kind=kind, **OPTIONS)) is served


@pytest.mark.parametrize(("name", "architecture", "words"), [
    ("generating/qwen2", "Qwen2ForSequenceClassification", r"config.json names 'Qwen2ForSequenceClassification', whose "
     r"head would be lost; load it with Engine \(on the command line, engine classify\)"),
    ("generating/bart", "BartForQuestionAnswering", r"load it with Engine \(on the command line, engine answer\)"),
    ("generating/gemma2", "Gemma2ForTokenClassification", "the engine reads no such head of 'gemma2' models"),
    ("generating/qwen3", "", r"modules.json makes it an embedding model; load it with Engine \(.*, engine encode\)"),
    ("reranker", None, r"modules.json makes it a reranker; load it with Reranker \(on the command line, engine rank\)"),
])
def test_a_folder_of_another_use_does_not_generate_in_silence(tmp_path, name, architecture, words):
    """A caller who says kind="generate" has the language model without its head, in another process too."""
    folder = tmp_path / "model"
    if architecture:
        with_architectures(name, folder, [architecture])
    else:
        shutil.copytree(found(name), folder)
    if architecture == "":
        write_modules(folder, [("Transformer", ""), ("Pooling", "1_Pooling")])
    with pytest.raises(UnsupportedError, match=words) as error:
        Generator.load(folder, **OPTIONS)
    assert 'engine.load(path, kind="generate"), or engine convert --kind generate' in str(error.value)
    asked = engine.load(folder, kind="generate", **OPTIONS)
    assert type(pickle.loads(pickle.dumps(asked))) is type(asked) is Generator


def with_modules(folder):
    """Write an encoder with the modules of sentence-transformers."""
    shutil.copytree(found("bert"), folder)
    write_modules(folder, [("Transformer", ""), ("Pooling", "1_Pooling")])
    (folder / "1_Pooling").mkdir()
    write_json(folder / "1_Pooling" / "config.json", {"pooling_mode_mean_tokens": True})


@pytest.mark.parametrize("make", [
    lambda folder: shutil.copytree(found("reranker"), folder),
    with_modules,
    lambda folder: shutil.copytree(found("generating/bart"), folder),
    lambda folder: save(load_model(DECODERS / "bart"), folder),
], ids=["reranker", "encoder with modules", "generator", "npz"])
def test_a_source_is_opened_once_and_each_of_its_files_too(make, tmp_path, monkeypatch):
    path, opened, sources = tmp_path / "model.npz", [], []
    make(path)
    open_file, open_path = os.open, loading._open

    def counting_open(file, *args, **options):
        opened.append(str(file))
        return open_file(file, *args, **options)

    monkeypatch.setattr("engine.files.reading.os.open", counting_open)
    monkeypatch.setattr(loading, "_open", lambda *args: sources.append(args) or open_path(*args))
    engine.load(path, **OPTIONS)
    own = [file for file in opened if file.startswith(str(path))]
    assert len(sources) == 1
    assert own
    assert len(own) == len(set(own))


def test_a_file_of_speech_is_transcribed(tmp_path):
    save(timed(), tmp_path / "speech.npz")
    found = engine.load(tmp_path / "speech.npz", **OPTIONS)
    assert type(found) is Transcriber
    again = pickle.loads(pickle.dumps(found))
    assert (type(again), again.backend, again.threads) == (Transcriber, "reference", 1)


@pytest.mark.parametrize(("name", "names", "served"), [
    ("generating/t5", ["T5EncoderModel"], Engine), ("generating/t5", ["T5Model"], Engine),
    ("generating/t5", ["T5ForTokenClassification"], Engine), ("generating/t5", ["T5WithLMHeadModel"], Generator),
    ("generating/qwen3", ["Qwen3Model"], Engine), ("generating/marian", ["MarianMTModel"], Generator),
    ("generating/marian", ["MarianModel"], Engine), ("generating/gpt2", None, Generator), ("bert", None, Engine),
])  # fmt: skip
def test_architectures_decide_where_two_kinds_fit(tmp_path, name, names, served):
    assert type(engine.load(with_architectures(name, tmp_path / "model", names), **OPTIONS)) is served


@pytest.mark.parametrize("names", [None, [], "T5Model"])
def test_nothing_is_guessed(tmp_path, names):
    folder = with_architectures("generating/t5", tmp_path / "model", names)
    with pytest.raises(InputError, match=r'config.json: .t5. models can encode and generate.*kind="encode" or'):
        engine.load(folder)
    assert type(engine.load(folder, kind="encode", **OPTIONS)) is Engine


def with_architectures(name, folder, names):
    """Return a copy of a folder whose config.json names other classes of transformers, or None for none."""
    shutil.copytree(found(name), folder)
    values = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    values.pop("architectures", None)
    write_json(folder / "config.json", values | ({} if names is None else {"architectures": names}))
    return folder


@pytest.mark.parametrize(("cls", "name", "words"), [
    (Generator, "bert", "an encoder, which generates no tokens, so it cannot generate; load it with Engine"),
    (Transcriber, "bert", "so it cannot transcribe; load it with Engine"),
    (Reranker, "bert", "so it cannot rank; load it with Engine"),
    (Engine, "generating/gpt2", r"a model that generates tokens, so it cannot encode; load it with Generator \(on the "
     "command line, engine generate"),
    (Engine, "small.gguf", "so it cannot encode; load it with Generator"),
    (Transcriber, "generating/bart", "so it cannot transcribe; load it with Generator"),
    (Generator, "generating/whisper", "a model of speech, so it cannot generate; load it with Transcriber"),
    (Reranker, "generating/bart", "a reranker is a language model with a tokenizer"),
    (Transcriber, "small.gguf", "so it cannot transcribe; load it with Generator"),
    (Engine, "reranker", "a reranker, so it cannot encode; load it with Reranker, or with engine.load"),
])  # fmt: skip
def test_a_class_refuses_the_models_of_another(cls, name, words):
    with pytest.raises(UnsupportedError, match=words):
        cls.load(found(name))


def test_a_language_model_in_one_file_ranks(tmp_path):
    (tmp_path / "m.gguf").write_bytes(gguf_of("qwen3"))
    reranker = Reranker.load(tmp_path / "m.gguf", template="{query}{document}", answers=(5, 6), **OPTIONS)
    generator = Generator.load(tmp_path / "m.gguf", **OPTIONS)
    prompt = generator.tokenizer.encode("ab")
    yes, no = (generator.score([prompt], [[answer]])[0].log_probabilities[0] for answer in (5, 6))
    assert reranker.predict(("a", "b"), logits=True) == pytest.approx(yes - no, rel=1e-4)


def test_files_of_other_libraries_say_what_to_load(tmp_path):
    with pytest.raises(UnsupportedError, match="cannot encode; load it with Generator"):
        Engine.load(CTRANSLATE2 / "pre")
    (tmp_path / "model.Q4_K_M.gguf").write_bytes(b"GGUF")
    with pytest.raises(WeightsError, match=r"no config.json; .*it has 'model.Q4_K_M.gguf', so pass the path of that"):
        Generator.load(tmp_path)
    (tmp_path / "model.onnx").write_bytes(b"\x08\x07")
    with pytest.raises(WeightsError, match="the engine reads no ONNX; load the folder of the model that it was made"):
        Engine.load(tmp_path / "model.onnx")


def test_a_tokenizer_gives_ids_and_texts():
    text, encoder = "the cat sat", load_model(ENCODERS / "bert")
    generator = Generator(with_tokenizer(load_model(DECODERS / "gpt2")), **OPTIONS)
    for tokenizer in (Engine(with_tokenizer(encoder), **OPTIONS).tokenizer, generator.tokenizer):
        assert tokenizer.encode(text, add_special_tokens=False) == ids(text)
        whole = tokenizer.encode(text)
        assert whole == [tokenizer.special_tokens["[CLS]"], *ids(text), tokenizer.special_tokens["[SEP]"]]
        assert tokenizer.decode(whole) == text
        assert tokenizer.decode(np.array(whole), skip_special_tokens=False) == f"[CLS] {text} [SEP]"
    for name, wrong, words in (("encode", [text], "one text, not"), ("encode", 5, "one text, not"),
                               ("decode", [-1], "ids must be"), ("decode", "a", "ids must be"),
                               ("decode", [2**40], "no vocabulary reaches")):
        with pytest.raises(InputError, match=words):
            getattr(generator.tokenizer, name)(wrong)
    with pytest.raises(UnsupportedError, match="without a tokenizer"):
        _ = Engine(encoder, **OPTIONS).tokenizer


def test_each_object_names_its_own_class():
    found = Transcriber(timed(), **OPTIONS), Reranker.load(DECODERS / "reranker", **OPTIONS)
    assert [repr(one).split(":")[0] for one in found] == ["<Transcriber", "<Reranker"]


def test_a_file_of_another_kind_is_refused(tmp_path):
    save(load_model(ENCODERS / "bert"), tmp_path / "encoder.npz")
    save(load_model(DECODERS / "bart"), tmp_path / "generator.npz")
    with pytest.raises(UnsupportedError, match=r"encoder.npz: .*load it with Engine"):
        Generator.load(tmp_path / "encoder.npz")
    with pytest.raises(UnsupportedError, match=r"generator.npz: .*load it with Generator"):
        Engine.load(tmp_path / "generator.npz")


def test_options_that_a_class_lacks(tmp_path):
    assert {kind: served.__name__ for kind, served in SERVES.items()} == CLASS_OF_KIND
    with pytest.raises(InputError, match=r"Generator\.load has no option least_cosine; it has backend"):
        engine.load(DECODERS / "bart", least_cosine=0.9)
    with pytest.raises(InputError, match=r"Engine\.load has no option max_rows"):
        engine.load(ENCODERS / "bert", max_rows=3)
    with pytest.raises(InputError, match="kind must be None or one of encode, generate, rank, transcribe, not 'embed'"):
        engine.load(ENCODERS / "bert", kind="embed")
    with pytest.raises(InputError, match="task='a' chooses an adapter of a folder"):
        load_model(DECODERS / "bart", task="a")


def test_the_old_name_of_max_batch_tokens_is_accepted_with_a_warning():
    with pytest.warns(FutureWarning, match="max_tokens is now called max_batch_tokens"):
        found = engine.load(ENCODERS / "bert", max_tokens=77, **OPTIONS)
    assert found.max_batch_tokens == 77
    with pytest.warns(FutureWarning), pytest.raises(InputError, match="max_batch_tokens is given twice"):
        Generator.load(DECODERS / "bart", max_tokens=77, max_batch_tokens=77)


@pytest.mark.parametrize("name", TRANSLATES)
def test_the_encoder_of_a_translator_alone(name):
    """What `kind="encode"` reads is the encoder that the generator has, whose vectors its golden file proves."""
    alone, whole = (load_model(DECODERS / name, kind=kind) for kind in ("encode", "generate"))
    assert alone.decoder is None
    assert alone.encoder.config == whole.encoder.config
    assert alone.encoder.weights.keys() == whole.encoder.weights.keys()
    for key, array in alone.encoder.weights.items():
        np.testing.assert_array_equal(array, whole.encoder.weights[key])


def test_load_takes_the_option_that_a_generator_alone_has():
    assert engine.load(found("generating/llama"), cache_tokens=99)._model.queue.room.tokens == 99
    with pytest.raises(engine.InputError, match=r"Engine\.load has no option cache_tokens"):
        engine.load(found("albert_relu"), cache_tokens=99)


def test_none_under_another_name_is_as_if_it_were_not_given():
    assert engine.load(found("albert_relu"), use_mmap=None).backend
