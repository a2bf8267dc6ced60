"""Make the golden files of tokenizers of translation between many languages, in the environment of tokenizers.py.

    python -m tests.golden.make.language_tokenizers

Each folder language_tokenizers/NAME of `MODELS` has the files of an older model folder, with a small vocabulary that is
trained here, and expected.json: the id of the token of each language, and texts, each with its source language, the ids
that transformers' slow tokenizer gives, and the text that it makes of those between the special tokens.
"""

import json
import random
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import sentencepiece
import transformers

from tests.tools.paths import LANGUAGE_TOKENIZERS

from .tokenizers import TEXTS, settings, spm

MORE = ["sentences of vectors and kernels", "Grüße aus der Straße", "a </s> b", "en_XX text", "__de__ text", "deu_Latn"]


def mbart(folder: Path) -> None:
    """Write mBART's tokenizer; its table of characters is a small one."""
    spm(folder, "sentencepiece.bpe.model")
    settings(folder, config={"model_type": "mbart"})


def mbart50(folder: Path) -> None:
    """Write the tokenizer of mBART with 50 languages, whose settings name another source language."""
    spm(folder, "sentencepiece.bpe.model")
    settings(folder, config={"model_type": "mbart"},
             tokenizer_config={"tokenizer_class": "MBart50Tokenizer", "src_lang": "de_DE"})  # fmt: skip


def nllb(folder: Path, **more: Any) -> None:
    """Write NLLB's tokenizer, a BPE, with the ids of its languages in the settings."""
    spm(folder, "sentencepiece.bpe.model", model_type="bpe", vocab_size=700)
    size = sentencepiece.SentencePieceProcessor(str(folder / "sentencepiece.bpe.model")).get_piece_size() + 1
    plain = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": True}
    tokens = {i: {"content": token, **plain} for i, token in enumerate(("<s>", "<pad>", "</s>", "<unk>"))}
    codes = transformers.models.nllb.tokenization_nllb.FAIRSEQ_LANGUAGE_CODES
    tokens |= {size + i: {"content": code, **plain} for i, code in enumerate(codes)}
    tokens[size + len(codes)] = {"content": "<mask>", **plain, "lstrip": True}
    settings(folder, config={"model_type": "m2m_100"}, tokenizer_config={
        "tokenizer_class": "NllbTokenizer", "added_tokens_decoder": tokens, "additional_special_tokens": codes, **more})


def nllb_legacy(folder: Path) -> None:
    """Write the same with the language behind the text."""
    nllb(folder, legacy_behaviour=True)


def m2m_100(folder: Path) -> None:
    """Write M2M100's tokenizer, with the normalizer of the real one."""
    spm(folder, "sentencepiece.bpe.model", "", model_type="bpe", vocab_size=700, normalization_rule_name="nmt_nfkc")
    vocabulary(folder)


def vocabulary(folder: Path, **more: Any) -> None:
    """Write the ids of the pieces of a SentencePiece model, of which some are missing."""
    name = "sentencepiece.bpe.model"
    model = sentencepiece.SentencePieceProcessor(str(folder / name))
    pieces = sorted({model.id_to_piece(i) for i in range(model.get_piece_size())} - {"<s>", "</s>", "<unk>"})
    kept = [piece for i, piece in enumerate(pieces) if i % 11]
    random.Random(0).shuffle(kept)
    module = transformers.models.m2m_100.tokenization_m2m_100
    codes = module.FAIRSEQ_LANGUAGE_CODES[more.get("language_codes", "m2m100")]
    settings(folder, special_tokens_map={"additional_special_tokens": [f"__{code}__" for code in codes]},
             vocab={piece: i for i, piece in enumerate(["<s>", "<pad>", "</s>", "<unk>", *kept, "madeup"])},
             config={"model_type": "m2m_100"}, tokenizer_config={"tokenizer_class": "M2M100Tokenizer", **more})


def m2m_100_unigram(folder: Path) -> None:
    """Write the same with a Unigram model, and the languages of WMT 2021."""
    spm(folder, "sentencepiece.bpe.model")
    vocabulary(folder, language_codes="wmt21")


MODELS: dict[str, tuple[str, Callable[[Path], None], tuple[str, str]]] = {
    "m2m_100": ("M2M100Tokenizer", m2m_100, ("en", "zu")),
    "m2m_100_unigram": ("M2M100Tokenizer", m2m_100_unigram, ("en", "cs")),
    "mbart": ("MBartTokenizer", mbart, ("en_XX", "zh_CN")),
    "mbart50": ("MBart50Tokenizer", mbart50, ("de_DE", "sl_SI")),
    "nllb": ("NllbTokenizer", nllb, ("eng_Latn", "zul_Latn")),
    "nllb_legacy": ("NllbTokenizer", nllb_legacy, ("eng_Latn", "ace_Arab")),
}
"""By folder: the class of transformers, the function that writes the files, and two languages, the default first."""


def main() -> None:
    """Write all folders."""
    warnings.simplefilter("ignore")
    for name, (kind, write, languages) in MODELS.items():
        folder = LANGUAGE_TOKENIZERS / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        write(folder)
        tokenizer = getattr(transformers, kind).from_pretrained(folder)
        tokens = tokenizer.additional_special_tokens
        codes = dict(zip((token.strip("_") for token in tokens), tokenizer.convert_tokens_to_ids(tokens), strict=True))
        lines = [json.dumps(codes)]
        for language, texts in zip(languages, ([*TEXTS, *MORE], MORE), strict=True):
            tokenizer.src_lang = language
            for text in texts:
                ids = tokenizer(text)["input_ids"]
                decoded = tokenizer.convert_tokens_to_string(
                    tokenizer.convert_ids_to_tokens(ids, skip_special_tokens=True))
                lines.append(json.dumps([language, text, ids, decoded], ensure_ascii=False))
        (folder / "expected.json").write_text("[" + ",\n".join(lines) + "]\n", encoding="utf-8")
        print(name, len(codes), list(codes.items())[:2], lines[6])


if __name__ == "__main__":
    main()
