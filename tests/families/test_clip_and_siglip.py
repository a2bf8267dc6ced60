"""The text encoders of CLIP and SigLIP: `encode` gives the text embeddings of transformers."""

import json
import shutil

import numpy as np
import pytest

from engine import Engine, InputError, UnsupportedError, WeightsError

from ..tools.encoders import load_encoder, save_encoder
from ..tools.golden_models import GOLDEN, load
from ..tools.running import RUNNING
from ..tools.tiny_models import write_modules_json

tokenizers = pytest.importorskip("tokenizers")

CLIP = ("clip_own", "clip_projected", "clip_bare")
SIGLIP = ("siglip_own", "siglip_text", "siglip2_text")
WIDTHS = {"clip_own": 21, "clip_projected": 50, "clip_bare": 33, "siglip_own": 42, "siglip_text": 25,
          "siglip2_text": 40}
BOS, EOS, PAD, WORDS = 3, 119, 1, 120


def make_tokenizer(ends=True, fills=True):
    """Return a tokenizer whose word <17> has the id 17, with the special tokens of CLIP or of SigLIP."""
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel({f"<{i}>": i for i in range(WORDS)}, unk_token="<0>"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens([f"<{PAD}>", f"<{BOS}>", f"<{EOS}>"])
    if fills:
        tokenizer.enable_padding(pad_id=PAD, pad_token=f"<{PAD}>")
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single=f"<{BOS}> $A" + f" <{EOS}>" * ends, special_tokens=[(f"<{BOS}>", BOS), (f"<{EOS}>", EOS)])
    return tokenizer


def make_folder(tmp_path, name, tokenizer=None, settings=None):
    """Return a copy of a golden model's folder with a tokenizer."""
    folder = tmp_path / name
    shutil.copytree(GOLDEN / name, folder)
    (tokenizer or make_tokenizer()).save(str(folder / "tokenizer.json"))
    settings = {"model_max_length": 300, "pad_token": f"<{PAD}>"} | (settings or {})
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    return folder


def texts_and_vectors(name):
    """Return texts without their special tokens, and their text embeddings."""
    with np.load(GOLDEN / name / "pooled.npz") as file:
        ids = [file[f"ids_{i}"].tolist() for i in range(5)]
        vectors = np.stack([file[f"pooled_{i}"] for i in range(5)])
    if name in SIGLIP:
        ids = [row[: len(row) - row[::-1].index(EOS)] for row in ids]
    return [" ".join(f"<{i}>" for i in row[1:-1]) for row in ids], vectors


@pytest.mark.parametrize("name", CLIP + SIGLIP)
def test_encode_gives_the_text_embeddings(name, backend, tmp_path):
    folder = make_folder(tmp_path, name)
    save_encoder(load_encoder(folder), tmp_path / "model.npz")
    texts, expected = texts_and_vectors(name)
    for path in (folder, tmp_path / "model.npz") if backend == RUNNING[0] else (folder,):
        engine = load(path, backend)
        vectors = engine.encode(texts)
        assert vectors.shape == (5, WIDTHS[name])
        assert np.abs(vectors - expected).max() <= 1e-4
        if backend != "reference":
            assert np.array_equal(np.stack([engine.encode(text) for text in texts]), vectors)


def test_a_text_of_clip_ends_at_its_first_end(tmp_path):
    engine = Engine.load(make_folder(tmp_path, "clip_projected"), backend="reference")
    assert engine.tokenize([f"<9> <{EOS}> <10> <11>"])["input_ids"].tolist() == [[BOS, 9, EOS]]
    a, b = engine.encode([f"<9> <{EOS}> <10> <11>", "<9>"])
    assert np.array_equal(a, b)


@pytest.mark.parametrize("name", CLIP + SIGLIP)
def test_a_text_of_one_token_too_many_is_refused(name):
    engine = Engine.load(GOLDEN / name, backend="reference")
    assert engine.forward([[5] * 300])[0].shape[0] == 300
    with pytest.raises(InputError, match="beyond the 300 tokens"):
        engine.forward([[5] * 301])


def test_a_tokenizer_without_the_end_is_refused(tmp_path):
    engine = Engine.load(make_folder(tmp_path, "clip_bare", make_tokenizer(ends=False)), backend="reference")
    with pytest.raises(WeightsError, match="gives a text no token 119, which ends a text"):
        engine.encode(["<5>"])


@pytest.mark.parametrize(("settings", "fills", "expected"), [
    ({}, True, PAD), ({"pad_token": f"<{EOS}>"}, True, EOS), ({"pad_token": {"content": f"<{EOS}>"}}, False, EOS),
    ({"pad_token": None}, True, PAD), ({"pad_token": None}, False, 7)])
def test_the_padding_that_siglip_reads(settings, fills, expected, tmp_path):
    folder = make_folder(tmp_path, "siglip_text", make_tokenizer(fills=fills), settings)
    values = json.loads((folder / "config.json").read_text(encoding="utf-8")) | {"pad_token_id": 7}
    (folder / "config.json").write_text(json.dumps(values), encoding="utf-8")
    engine = Engine.load(folder, backend="reference")
    assert engine.text.fill_id == expected
    ids = engine.tokenize(["<5> <6>"])["input_ids"]
    assert ids.shape == (1, 300)
    assert ids[0, :6].tolist() == [BOS, 5, 6, EOS, expected, expected]


def test_padding_on_the_left_is_refused(tmp_path):
    with pytest.raises(UnsupportedError, match="padding_side 'left' is not supported"):
        load_encoder(make_folder(tmp_path, "siglip_own", settings={"padding_side": "left"}))


def test_a_sentence_transformers_folder_of_clip(tmp_path):
    inner = make_folder(tmp_path, "clip_own")
    folder = tmp_path / "sentence"
    shutil.move(str(inner), folder / "0_CLIPModel")
    write_modules_json(folder, ("0_CLIPModel", "sentence_transformers.models.CLIPModel"))
    texts, expected = texts_and_vectors("clip_own")
    assert np.abs(Engine.load(folder, backend="reference").encode(texts) - expected).max() <= 1e-4


def test_a_folder_without_a_tokenizer_gives_token_vectors():
    model = load_encoder(GOLDEN / "siglip_own")
    assert model.text is None
    assert model.modules == ()


def test_a_damaged_tokenizer_of_siglip_is_refused(tmp_path):
    folder = make_folder(tmp_path, "siglip_own")
    (folder / "tokenizer.json").write_bytes(b'{"added_tokens": \xd8}')
    with pytest.raises(WeightsError, match=r"siglip_own: tokenizer.json: not valid UTF-8 JSON"):
        load_encoder(folder)
