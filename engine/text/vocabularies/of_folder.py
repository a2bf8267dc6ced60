"""Read the tokenizers of a model's folder: from tokenizer.json, or from the vocabulary files that it has instead."""

from __future__ import annotations

from ...files.folder import ModelFolder
from ...model.text_config import TextConfig
from ..safety import MAX_TOKENIZER
from . import fairseq, marian, read_vocabulary, recipes, tokenizer_settings

_TOKENIZER = "tokenizer.json"
_VOCABULARIES = (*recipes.FILES, *marian.FILES, marian.OWN_VOCABULARY, *fairseq.FILES)


def tokenizer_files(folder: ModelFolder) -> list[str]:
    """Return the names of the files in a folder that `read_tokenizers` may read."""
    vocabulary = (_TOKENIZER,) if folder.has(_TOKENIZER) else _VOCABULARIES
    return [name for name in dict.fromkeys((*tokenizer_settings.FILES, *vocabulary)) if folder.has(name)]


def read_tokenizers(folder: ModelFolder, *, translates: bool) -> tuple[TextConfig | None, TextConfig | None]:
    """Return the tokenizers (of the source, of the target), which are one object for most models.

    None stands for a model that reads token ids only. translates: whether the folder may have the vocabularies of a
    translation model, Marian's or M2M100's. Raises `WeightsError` and `UnsupportedError`.
    """
    if folder.has(_TOKENIZER):
        with folder.naming(_TOKENIZER):
            text = TextConfig(folder.read_bytes(_TOKENIZER, MAX_TOKENIZER))
        return text, text
    if translates and (sides := marian.read_marian(folder)) is not None:
        return sides.source, sides.target
    if translates and (text_of_both := fairseq.read_m2m(folder)) is not None:
        return text_of_both, text_of_both
    made = read_vocabulary(folder)
    return made, made
