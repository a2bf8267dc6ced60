"""The tokenizers of mBART, NLLB and M2M100 without tokenizer.json, and the languages of `translate`.

tests/golden/make/language_tokenizers.py made the folders with transformers' slow tokenizers.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine import load_model, save
from engine.base.errors import InputError, UnsupportedError, WeightsError
from engine.cli.main import main
from engine.files.folder import ModelFolder
from engine.files.safetensors import read_safetensors
from engine.interface.generator import Generator
from engine.methods.translate import choose_languages, language_ids
from engine.model.text_config import TextConfig
from engine.text.tokenizer import Tokenizer
from engine.text.vocabularies import read_vocabulary
from engine.text.vocabularies.fairseq import read_m2m
from engine.text.vocabularies.language_codes import M2M100, MBART50, NLLB, WMT21

from ..tools.changed_folders import copied
from ..tools.paths import DECODERS, LANGUAGE_TOKENIZERS, MARIAN_TOKENIZER
from ..tools.tiny_models import safetensors, write_json
from ..tools.tiny_text import COMPOSED

tokenizers = pytest.importorskip("tokenizers")

NAMES = sorted(path.name for path in LANGUAGE_TOKENIZERS.iterdir())
FAMILIES = {"mbart": "mbart", "mbart50": "mbart"}


def folder_of(name: str) -> Path:
    return LANGUAGE_TOKENIZERS / name


def expected(name: str) -> tuple[dict[str, int], list[tuple[str, str, list[int], str]]]:
    codes, *rows = json.loads((folder_of(name) / "expected.json").read_text(encoding="utf-8"))
    return codes, rows


def read(folder: Path) -> TextConfig:
    """Return the tokenizer of a folder, as the loader of a generating model reads it."""
    text = read_m2m(ModelFolder(folder))
    if text is None:
        made = read_vocabulary(ModelFolder(folder))
        assert made is not None
        text = replace(made, feeds_token_types=False)
    return text


def ids_of(text: TextConfig, name: str, sentence: str, language: str | None = None) -> list[int]:
    """Return the ids of a sentence in a language."""
    family = FAMILIES.get(name, "m2m_100")
    ids = Tokenizer(text, None, 1)([sentence]).input_ids[0].astype(np.int64)
    [found], _ = choose_languages(family, language_ids(family, text), [ids], language, None)
    return found.tolist()


@pytest.mark.parametrize("name", NAMES)
def test_the_ids_and_the_texts_of_transformers(name):
    text, (codes, rows) = read(folder_of(name)), expected(name)
    assert language_ids(FAMILIES.get(name, "m2m_100"), text) == codes
    tokenizer, wrong = Tokenizer(text, None, 1), []
    for language, sentence, ids, decoded in rows:
        if ids_of(text, name, sentence, language) != ids:
            wrong.append(sentence)
        assert tokenizer.decode(ids).strip() == decoded
    assert wrong == ([COMPOSED] if name == "m2m_100" else [])
    assert len({tuple(ids) for _, _, ids, _ in rows}) > 50
    default = rows[0][0]
    assert ids_of(text, name, "the cat") == ids_of(text, name, "the cat", default)


def test_pieces_that_the_vocabulary_lacks():
    for name in ("m2m_100", "m2m_100_unigram"):
        text = read(folder_of(name))
        ids = json.loads((folder_of(name) / "vocab.json").read_text(encoding="utf-8"))
        assert text.known_ids == len(ids) + len(expected(name)[0])
        assert text.unknown_id == 3
        assert Tokenizer(text, None, 1).decode([ids["madeup"]]) == "madeup"
        assert ids["madeup"] not in ids_of(text, name, "madeup madeup")


def test_settings_that_name_nothing(tmp_path):
    """Old folders of NLLB and M2M100 have no settings; the ids of the languages are fairseq's."""
    for name in ("nllb", "m2m_100", "mbart"):
        folder = copied(tmp_path / name, folder_of(name))
        for file in ("tokenizer_config", "special_tokens_map"):
            (folder / f"{file}.json").unlink(missing_ok=True)
        text, family = read(folder), FAMILIES.get(name, "m2m_100")
        assert language_ids(family, text) == expected(name)[0]
        assert ids_of(text, name, "the cat") == ids_of(read(folder_of(name)), name, "the cat")


def test_the_source_language_of_the_settings(tmp_path):
    folder = copied(tmp_path, folder_of("nllb"), tokenizer_config={
        "tokenizer_class": "NllbTokenizer", "src_lang": "deu_Latn"})
    assert ids_of(read(folder), "nllb", "the cat") == ids_of(read(folder_of("nllb")), "nllb", "the cat", "deu_Latn")


@pytest.mark.parametrize(("name", "files", "error", "words"), [
    ("mbart50", {"tokenizer_config": {"tokenizer_class": "MBart50Tokenizer", "src_lang": "de"}}, WeightsError,
     "names the source language 'de'; the model has ar_AR, cs_CZ"),
    ("m2m_100", {"tokenizer_config": {"src_lang": 3}}, WeightsError, "names the source language 3; the model has af"),
    ("m2m_100", {"tokenizer_config": {"language_codes": "other"}}, UnsupportedError, "supported are m2m100, wmt21"),
    ("m2m_100", {"vocab": {"<s>": 0, "<pad>": 1}}, WeightsError, "vocab.json: it lacks the token '</s>'"),
    ("m2m_100", {"vocab": {"<s>": 1}}, WeightsError, "the ids 0, 1, 2 and so on"),
    ("m2m_100", {"vocab": {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3, "__de__": 4}}, WeightsError, "'__de__' of a"),
])  # fmt: skip
def test_bad_folders(tmp_path, name, files, error, words):
    with pytest.raises(error, match=words):
        read(copied(tmp_path, folder_of(name), **files))


def test_ids_of_the_settings_that_are_not_fairseq_s(tmp_path, caplog):
    settings = json.loads((folder_of("nllb") / "tokenizer_config.json").read_text(encoding="utf-8"))
    tokens = settings["added_tokens_decoder"]
    number = next(number for number, token in tokens.items() if token["content"] == "deu_Latn")
    tokens["5000"] = tokens.pop(number)
    assert read_vocabulary(ModelFolder(copied(tmp_path, folder_of("nllb"), tokenizer_config=settings))) is None
    assert "'deu_Latn' has the id 5000 in the settings" in caplog.text


def test_the_tables_of_languages():
    for codes, count in ((M2M100, 100), (MBART50, 52), (NLLB, 202), (WMT21, 8)):
        assert len(codes) == len(set(codes)) == count


def model_folder(name: str, folder: Path, **settings: Any) -> Path:
    """Write the folder of a model with a golden tokenizer and random weights."""
    kind = FAMILIES.get(name, "m2m_100")
    copied(folder, folder_of(name))
    size = max(expected(name)[0].values()) + 1 + 8
    values = json.loads((DECODERS / kind / "config.json").read_text(encoding="utf-8"))
    write_json(folder / "config.json", values | {"vocab_size": size, "decoder_start_token_id": 2})
    codes, rows = expected(name)
    used = {codes[code] for code in ("fra_Latn", *(row[0] for row in rows)) if code in codes}
    # Results of special tokens would have no text.
    special = [0, 1, 2, 3, *({*range(min(codes.values()), size)} - used)]
    write_json(folder / "generation_config.json", {"max_length": 9, "eos_token_id": 2, "decoder_start_token_id": 2,
                                                   "suppress_tokens": special, **settings})
    rng = np.random.default_rng(0)
    rows = {"model.shared.weight": (size, 12), "final_logits_bias": (1, size)}
    tensors = {key: rng.standard_normal(rows[key]).astype(np.float32) if key in rows else tensor for key, tensor in
               read_safetensors(DECODERS / kind / "model.safetensors").items()}  # fmt: skip
    (folder / "model.safetensors").write_bytes(safetensors(tensors))
    return folder


TEXTS = ["the cat sleeps", "Grüße aus der Straße"]


@pytest.mark.parametrize("name", NAMES)
def test_translate_with_languages(tmp_path, name, capsys):
    codes, rows = expected(name)
    source, target = [*dict.fromkeys(row[0] for row in rows)]
    folder = model_folder(name, tmp_path)
    save(load_model(folder, kind="generate"), tmp_path / "m.npz")
    for path in (folder, tmp_path / "m.npz"):
        generator = Generator.load(path, backend="reference")
        assert generator.languages == list(codes)
        sources = [ids_of(generator.text, name, text, target) for text in TEXTS]
        # The first mBART begins with the language, the others with the end token and then the language.
        start = "decoder_start_token_id" if name == "mbart" else "forced_bos_token_id"
        inputs, settings = generator.translation(TEXTS, target, source, num_beams=2)
        assert [one.tolist() for one in inputs] == sources
        assert settings == {start: codes[source], "num_beams": 2}
        inputs, settings = generator.translation(TEXTS, None, target, **{start: codes[source]})
        assert [one.tolist() for one in inputs] == [ids_of(generator.text, name, text) for text in TEXTS] != sources
        assert settings == {start: codes[source]}, "an argument of generate comes first"
        options = {"do_sample": True, "top_k": 0, "temperature": 9.0}
        right = [one.text for one in generator.generate(sources, **{start: codes[source]}, **options)]
        assert generator.translate(TEXTS, source_language=target, target_language=source, **options) == right
        assert generator.translate(TEXTS, source_language=source, target_language=source, **options) != right
        right = [one.text for one in generator.generate(sources, **{start: codes[source]})]
    (tmp_path / "lines.txt").write_text("\n".join(TEXTS) + "\n", encoding="utf-8")
    assert main(["translate", str(folder), str(tmp_path / "lines.txt"), "--backend", "reference", "--source-language",
                 target, "--target-language", source]) == 0
    assert capsys.readouterr().out.splitlines() == right


def test_languages_that_are_not_there(tmp_path):
    generator = Generator.load(model_folder("mbart", tmp_path), backend="reference")
    codes = ", ".join(expected("mbart")[0])
    for name in ("source_language", "target_language"):
        with pytest.raises(InputError, match=f"{name} must be one of {codes}, not 'de'"):
            generator.translate(TEXTS, **{name: "de"})
    with pytest.raises(InputError, match=f"needs a target_language for its results; it knows {codes}"):
        generator.translate(TEXTS)


def test_a_language_of_the_model_s_own_settings(tmp_path):
    codes = expected("nllb")[0]
    generator = Generator.load(model_folder("nllb", tmp_path, forced_bos_token_id=codes["fra_Latn"]),
                               backend="reference")
    assert generator.translate(TEXTS) == generator.translate(TEXTS, target_language="fra_Latn")


def test_a_language_in_front_of_the_source():
    ids = np.array([5, 6], np.int64)
    found, settings = choose_languages("marian", {"deu": 9}, [ids], None, "deu")
    assert ([one.tolist() for one in found], settings) == ([[9, 5, 6]], {})
    with pytest.raises(UnsupportedError, match="leave out source_language"):
        choose_languages("marian", {"deu": 9}, [ids], "deu", "deu")
    with pytest.raises(UnsupportedError, match="no language tokens"):
        choose_languages("marian", {}, [ids], None, "deu")
    with pytest.raises(UnsupportedError, match="adds no language token to a text"):
        choose_languages("mbart", {"de_DE": 9}, [ids], "de_DE", None)


def test_the_languages_of_marian():
    from engine.text.vocabularies.marian import read_marian

    sides = read_marian(ModelFolder(MARIAN_TOKENIZER))
    codes = language_ids("marian", sides.source)
    assert list(codes) == ["deu", "fra", "cmn_Hans"]
    tokenizer = Tokenizer(sides.source, None, 1)
    plain, named = (ids.astype(np.int64) for ids in tokenizer(["The cat sleeps.", ">>deu<< The cat sleeps."]).input_ids)
    [found], _ = choose_languages("marian", codes, [plain], None, "deu")
    assert found.tolist() == named.tolist()
    assert language_ids("t5", sides.source) == {}
