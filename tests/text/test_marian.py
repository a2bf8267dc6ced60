"""Marian's two tokenizers: the ids and texts of transformers, and folders that are not right.

tests/golden/make/marian_tokenizer.py made the folder and the expected ids.
"""

import json

import numpy as np
import pytest

from engine.base.errors import EngineError, UnsupportedError, WeightsError
from engine.files.folder import ModelFolder
from engine.files.safetensors import read_safetensors
from engine.interface.generator import Generator
from engine.model.text_config import TextConfig
from engine.text.tokenizer import Tokenizer
from engine.text.vocabularies.marian import read_marian

from ..tools.changed_folders import copied
from ..tools.paths import DECODERS, MARIAN_TOKENIZER, TOKENIZERS
from ..tools.tiny_models import safetensors, write_json
from ..tools.tiny_text import COMPOSED

tokenizers = pytest.importorskip("tokenizers")

GOLDEN = MARIAN_TOKENIZER
EXPECTED = json.loads((GOLDEN / "expected.json").read_text(encoding="utf-8"))


def ids_of(text: TextConfig, sentence: str) -> list[int]:
    return Tokenizer(text, None, 1)([sentence]).input_ids[0].tolist()


def vocabulary() -> dict[str, int]:
    return json.loads((GOLDEN / "vocab.json").read_text(encoding="utf-8"))


def test_the_ids_of_transformers():
    sides = read_marian(ModelFolder(GOLDEN))
    source, target = (Tokenizer(side, None, 1) for side in (sides.source, sides.target))
    texts = [text for text, *_ in EXPECTED]
    found = [[ids.tolist() for ids in side(texts).input_ids] for side in (source, target)]
    wrong = [text for text, one, two, (_, *right, _) in zip(texts, *found, EXPECTED, strict=True)
             if [one, two] != right]  # fmt: skip
    assert wrong == [COMPOSED]
    assert len({tuple(ids) for ids in found[0]}) > 40
    # Some pieces of the SentencePiece model are unknown to the model.
    assert sides.source.known_ids == len(vocabulary())
    assert max(max(ids) for ids in found[0]) < len(vocabulary())


def test_the_texts_of_transformers():
    target = tokenizers.Tokenizer.from_str(read_marian(ModelFolder(GOLDEN)).target.tokenizer_json.decode())
    for _, _, ids, text in EXPECTED:
        assert target.decode(ids, skip_special_tokens=True).strip() == text


def test_pieces_of_the_other_side_match_no_text_and_are_decoded():
    target = read_marian(ModelFolder(GOLDEN)).target
    tokenizer = tokenizers.Tokenizer.from_str(target.tokenizer_json.decode())
    of_target = {text for text, _ in json.loads(target.tokenizer_json)["model"]["vocab"]}
    others = [piece for piece in vocabulary() if piece not in of_target and "▁" not in piece and len(piece) > 1]
    assert len(others) > 10
    for piece in others:
        assert tokenizer.decode([vocabulary()[piece]]) == piece
        assert vocabulary()[piece] not in ids_of(target, piece)


def test_separate_vocabularies(tmp_path):
    reversed_ids = {piece: len(vocabulary()) - 1 - i for piece, i in vocabulary().items()}
    folder = copied(tmp_path, GOLDEN, tokenizer_config={"separate_vocabs": True}, target_vocab=reversed_ids)
    sides = read_marian(ModelFolder(folder))
    text = "the cat"
    assert ids_of(sides.source, text) == ids_of(read_marian(ModelFolder(GOLDEN)).source, text)
    last = len(vocabulary()) - 1
    assert ids_of(sides.target, text) == [last - i for i in ids_of(read_marian(ModelFolder(GOLDEN)).target, text)]


def test_a_vocabulary_with_all_pieces_has_no_unknown_ids(tmp_path):
    sides = read_marian(ModelFolder(GOLDEN))
    pieces = {text.strip() for side in (sides.source, sides.target)
              for text, _ in json.loads(side.tokenizer_json)["model"]["vocab"]}  # fmt: skip
    folder = copied(tmp_path, GOLDEN, vocab={piece: i for i, piece in enumerate(sorted(pieces))})
    sides = read_marian(ModelFolder(folder))
    assert (sides.source.known_ids, sides.target.known_ids) == (0, 0)
    assert tokenizers.Tokenizer.from_str(sides.source.tokenizer_json.decode()).get_vocab_size() == len(pieces)


@pytest.mark.parametrize("name", ["source.spm", "target.spm", "vocab.json"])
def test_another_folder(tmp_path, name):
    (copied(tmp_path, GOLDEN) / name).unlink()
    assert read_marian(ModelFolder(tmp_path)) is None


@pytest.mark.parametrize(("files", "words"), [
    ({"vocab": {}}, "lacks the token '</s>'"), ({"vocab": {"a": 1}}, "ids 0, 1, 2"), ({"vocab": {"a": "0"}}, "ids 0"),
    ({"vocab": {"</s>": 0, "<unk>": 0}}, "ids 0, 1, 2"), ({"vocab": {"</s>": True}}, "ids 0"),
    ({"tokenizer_config": {"unk_token": "[UNK]"}}, r"lacks the token '\[UNK\]'"),
    ({"tokenizer_config": {"separate_vocabs": True}}, "target_vocab.json: cannot be read"),
    ({"tokenizer_config": {"separate_vocabs": 1}}, "must be true or false"),
])
def test_bad_vocabularies(tmp_path, files, words):
    with pytest.raises(WeightsError, match=words):
        read_marian(ModelFolder(copied(tmp_path, GOLDEN, **files)))


@pytest.mark.parametrize("data", [b"", b"\xff", (GOLDEN / "target.spm").read_bytes()[:-100]])
def test_bad_models(tmp_path, data):
    (copied(tmp_path, GOLDEN) / "source.spm").write_bytes(data)
    with pytest.raises(WeightsError, match=r"source\.spm"):
        read_marian(ModelFolder(tmp_path))


def test_models_of_another_type(tmp_path):
    (copied(tmp_path, GOLDEN) / "source.spm").write_bytes((TOKENIZERS / "llama" / "tokenizer.model").read_bytes())
    with pytest.raises(UnsupportedError, match="has the type 2; only Unigram"):
        read_marian(ModelFolder(tmp_path))


@pytest.mark.parametrize("values", [{"known_ids": -1}, {"known_ids": 2**40}, {"known_ids": 3, "unknown_id": 4},
                                    {"unknown_id": -1}, {"known_ids": 1.0}])  # fmt: skip
def test_bad_numbers_of_known_ids(values):
    with pytest.raises(EngineError, match="known_ids"):
        TextConfig(b"", **values)


def test_known_ids_are_saved():
    text = TextConfig(b"x", known_ids=5, unknown_id=1)
    assert TextConfig.from_json(json.loads(json.dumps(text.to_json())), b"x") == text
    assert "known_ids" not in TextConfig(b"x").to_json()


def test_a_folder_translates_with_both_tokenizers(tmp_path):
    folder, size = copied(tmp_path, GOLDEN), len(vocabulary())
    model = DECODERS / "marian"
    values = json.loads((model / "config.json").read_text(encoding="utf-8"))
    special = {"pad_token_id": size - 1, "decoder_start_token_id": size - 1, "eos_token_id": 0,
               "forced_eos_token_id": 0}
    write_json(folder / "config.json", values | special | {"vocab_size": size, "decoder_vocab_size": size})
    write_json(folder / "generation_config.json", special | {"bad_words_ids": [[size - 1]], "max_length": 9})
    rng = np.random.default_rng(0)
    rows = {"model.shared.weight": (size, 12), "final_logits_bias": (1, size)}
    tensors = read_safetensors(model / "model.safetensors")
    tensors = {name: rng.standard_normal(rows[name]).astype(np.float32) if name in rows else tensor
               for name, tensor in tensors.items()}  # fmt: skip
    (folder / "model.safetensors").write_bytes(safetensors(tensors))
    generator = Generator.load(folder, backend="reference")
    text, source, _, _ = next(row for row in EXPECTED if row[1] != row[2] and len(row[1]) > 8)
    [result] = generator.generate([text])
    assert result.ids == generator.generate([source])[0].ids
    decoder = tokenizers.Tokenizer.from_str(read_marian(ModelFolder(folder)).target.tokenizer_json.decode())
    assert generator.translate([text]) == [decoder.decode(result.ids, skip_special_tokens=True)]
    assert len(result.ids) > 2
