"""Make the golden files of Marian's two tokenizers, in the environment of tokenizers.py.

    python -m tests.golden.make.marian_tokenizer

The folder tokenizers/marian has source.spm, target.spm and vocab.json, which lacks some pieces of both sides, and
expected.json: texts, each with the ids that transformers' MarianTokenizer gives on the side of the source and on that
of the target, and the text that it makes of the latter.
"""

import json
import warnings

from transformers import MarianTokenizer

from tests.tools.paths import MARIAN_TOKENIZER

from .tokenizers import TEXTS

MORE = [">>deu<< The cat sleeps.", ">>fra<<The cat", ">>cmn_Hans<<", ">>deu<<  many   spaces", ">> not a code",
        "a </s> b", "<pad>", "x <unk> y", "sentences of vectors and kernels", "Grüße aus der Straße"]


def main() -> None:
    """Write expected.json into the folder."""
    warnings.simplefilter("ignore")
    tokenizer = MarianTokenizer.from_pretrained(MARIAN_TOKENIZER)
    lines = []
    for text in [*TEXTS, *MORE]:
        source, target = tokenizer(text)["input_ids"], tokenizer(text_target=text)["input_ids"]
        tokenizer._decode_use_source_tokenizer = False
        decoded = tokenizer.convert_tokens_to_string(tokenizer.convert_ids_to_tokens(target, skip_special_tokens=True))
        lines.append(json.dumps([text, source, target, decoded], ensure_ascii=False))
    (MARIAN_TOKENIZER / "expected.json").write_text("[" + ",\n".join(lines) + "]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
