"""Make a tiny tokenizer with BERT's special tokens, for models with the vocabulary of `tiny_models`."""

import pytest

from engine.model.text_config import TextConfig

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
WORDS = ("the", "cat", "sat", "on", "a", "mat", "query", ":", "dog", "ran", "far", "and", "away")
VOCABULARY = {token: i for i, token in enumerate(SPECIAL + WORDS)}


def ids(words: str) -> list[int]:
    """Return the token ids of a text whose words are in the vocabulary."""
    return [VOCABULARY[word] for word in words.split()]


def tiny_text(**changes) -> TextConfig:
    """Return a text configuration; skip the test when `tokenizers` is not installed."""
    tokenizers = pytest.importorskip("tokenizers")
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(VOCABULARY, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.add_special_tokens(list(SPECIAL))
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    # Exported tokenizers often contain the padding and truncation of their training; neither may have an effect.
    tokenizer.enable_padding(length=5)
    tokenizer.enable_truncation(5)
    return TextConfig(tokenizer.to_str().encode(), **changes)


COMPOSED = "a\u0301\u0302\u0303 z\u0335"
"""A text with other ids: SentencePiece composes a letter and the first of three accents, `tokenizers` does not."""
