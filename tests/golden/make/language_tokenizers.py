"""Make the golden files of tokenizers of translation between many languages, in the environment of tokenizers.py.

    python -m tests.golden.make.language_tokenizers

Each folder tokenizers/languages/NAME of `MODELS` has the files of an older model folder, with a small vocabulary, and
expected.json: the id of the token of each language, and texts, each with its source language, the ids that
transformers' slow tokenizer gives, and the text that it makes of those between the special tokens.
"""

import json
import warnings

import transformers

from tests.tools.paths import LANGUAGE_TOKENIZERS

from .tokenizers import TEXTS

MORE = ["sentences of vectors and kernels", "Grüße aus der Straße", "a </s> b", "en_XX text", "__de__ text", "deu_Latn"]


MODELS = {
    "m2m_100": ("M2M100Tokenizer", ("en", "zu")), "m2m_100_unigram": ("M2M100Tokenizer", ("en", "cs")),
    "mbart": ("MBartTokenizer", ("en_XX", "zh_CN")), "mbart50": ("MBart50Tokenizer", ("de_DE", "sl_SI")),
    "nllb": ("NllbTokenizer", ("eng_Latn", "zul_Latn")), "nllb_legacy": ("NllbTokenizer", ("eng_Latn", "ace_Arab")),
}
"""By folder: the class of transformers, and two languages, the default first."""


def main() -> None:
    """Write expected.json into all folders."""
    warnings.simplefilter("ignore")
    for name, (kind, languages) in MODELS.items():
        folder = LANGUAGE_TOKENIZERS / name
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
