"""Make the golden files of Marian's two tokenizers, in the environment of tokenizers.py.

    python -m tests.golden.make.marian_tokenizer

The folder marian_tokenizer has source.spm, target.spm and vocab.json, trained here, and expected.json: texts, each with
the ids that transformers' MarianTokenizer gives on the side of the source and on that of the target, and the text that
it makes of the latter. vocab.json lacks some pieces of both sides.
"""

import json
import random
import shutil
import warnings

import sentencepiece
from transformers import MarianTokenizer

from tests.tools.paths import MARIAN_TOKENIZER

from .tokenizers import TEXTS, settings, spm

CODES = [">>deu<<", ">>fra<<", ">>cmn_Hans<<"]
MORE = [">>deu<< The cat sleeps.", ">>fra<<The cat", ">>cmn_Hans<<", ">>deu<<  many   spaces", ">> not a code",
        "a </s> b", "<pad>", "x <unk> y", "sentences of vectors and kernels", "Grüße aus der Straße"]


def main() -> None:
    """Write the folder."""
    warnings.simplefilter("ignore")
    shutil.rmtree(MARIAN_TOKENIZER, ignore_errors=True)
    MARIAN_TOKENIZER.mkdir()
    spm(MARIAN_TOKENIZER, "source.spm", "", normalization_rule_name="nmt_nfkc", user_defined_symbols=["<ent>"])
    spm(MARIAN_TOKENIZER, "target.spm", vocab_size=300)
    pieces = {}
    for name in ("source.spm", "target.spm"):
        model = sentencepiece.SentencePieceProcessor(str(MARIAN_TOKENIZER / name))
        pieces |= dict.fromkeys(model.id_to_piece(i) for i in range(model.get_piece_size()))
    kept = [piece for i, piece in enumerate(sorted(pieces.keys() - {"<s>", "</s>", "<unk>"})) if i % 9]
    random.Random(0).shuffle(kept)
    vocabulary = ["</s>", "<unk>", *kept[:100], *CODES, *kept[100:], "<pad>"]
    settings(MARIAN_TOKENIZER, vocab={piece: i for i, piece in enumerate(vocabulary)}, config={"model_type": "marian"},
             tokenizer_config={"target_lang": "deu", "source_lang": "eng"})
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
