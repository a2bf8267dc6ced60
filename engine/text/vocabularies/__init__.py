"""Make a tokenizer.json from the vocabulary files of a model folder that has none.

The result is the document that transformers 4 makes of such a folder, so that its token ids are those of a published
tokenizer.json. Reading the files needs neither transformers nor `tokenizers`; encoding a text needs `tokenizers`.
of_folder.py, which loading/ calls, chooses the files; recipes.py has a row for each class of tokenizer.
"""

from __future__ import annotations

import logging

from ...base.errors import UnsupportedError, shown
from ...files.folder import ModelFolder
from ...model.text_config import TextConfig
from .gguf import gguf_bytes_alone as gguf_bytes_alone
from .gguf import gguf_ends as gguf_ends
from .gguf import gguf_keeps_space as gguf_keeps_space
from .gguf import read_gguf_tokenizer as read_gguf_tokenizer
from .recipes import FILES, RECIPES
from .tokenizer_json import Components, document
from .tokenizer_settings import FILES as SETTINGS_FILES
from .tokenizer_settings import TokenizerSettings

LOG = logging.getLogger("engine")
SETTINGS = SETTINGS_FILES[0]
"""The file that names the class of a tokenizer."""

DEFAULTS = {
    "albert": "AlbertTokenizer", "bart": "BartTokenizer",
    "bert": "BertTokenizer", "big_bird": "BigBirdTokenizer",
    "blenderbot": "BlenderbotTokenizer", "camembert": "CamembertTokenizer",
    "codegen": "GPT2Tokenizer", "deberta": "DebertaTokenizer",
    "deberta-v2": "DebertaV2Tokenizer", "distilbert": "DistilBertTokenizer",
    "dpr": "BertTokenizer", "electra": "ElectraTokenizer",
    "esm": "EsmTokenizer", "gpt2": "GPT2Tokenizer",
    "gpt_neo": "GPT2Tokenizer", "gte": "XLMRobertaTokenizer",
    "jina_embeddings_v3": "XLMRobertaTokenizer", "llama": "LlamaTokenizer",
    "m2m_100": "NllbTokenizer", "mbart": "MBartTokenizer",
    "mistral": "LlamaTokenizer", "mpnet": "MPNetTokenizer",
    "mt5": "T5Tokenizer", "nomic_bert": "BertTokenizer",
    "opt": "GPT2Tokenizer", "phi": "GPT2Tokenizer",
    "pegasus": "PegasusTokenizer", "roberta": "RobertaTokenizer",
    "t5": "T5Tokenizer", "umt5": "T5Tokenizer",
    "xlm-roberta": "XLMRobertaTokenizer",
}
"""The class of the tokenizer by model_type, for folders whose settings name none."""

_WITHOUT_FILE = frozenset({
    "BartphoTokenizer", "BertJapaneseTokenizer", "BertweetTokenizer", "BioGptTokenizer", "BlenderbotSmallTokenizer",
    "CTRLTokenizer", "CanineTokenizer", "FSMTTokenizer", "FlaubertTokenizer",
    "GPTNeoXJapaneseTokenizer", "MyT5Tokenizer", "PLBartTokenizer", "PerceiverTokenizer", "PhobertTokenizer",
    "ProphetNetTokenizer", "RoCBertTokenizer", "TapasTokenizer", "Wav2Vec2CTCTokenizer", "XLMTokenizer",
})  # fmt: skip
"""Classes of transformers 5.23 that write no tokenizer.json."""


def read_vocabulary(folder: ModelFolder) -> TextConfig | None:
    """Return the tokenizer of a folder, or None if it has no vocabulary.

    If the tokenizer is not supported, a warning says so, and the result is None, too: the model then reads token ids
    only. Raises `WeightsError` for damaged files.
    """
    present = [name for name in FILES if folder.has(name)]
    if not present and not folder.has(SETTINGS):
        return None
    settings = TokenizerSettings(folder)
    kind = _class_of(settings)
    recipe = RECIPES.get(kind)
    if not present and (recipe is None or recipe.needs):
        return None
    try:
        if recipe is None or (files := recipe.files(present)) is None:
            raise UnsupportedError(f"the tokenizer {shown(kind)} cannot be made from {', '.join(present)}")
        if settings.values.get("do_basic_tokenize") is False:
            raise UnsupportedError("do_basic_tokenize = false is not supported; only true is")
        source = files[0] if files else SETTINGS
        with folder.naming(source):
            components = recipe.build(folder, files, settings)
            made = document(components, settings.tokens(components.tokens), _roles(components, settings), source,
                            stated_ids=settings.stated_ids, left=settings.values.get("truncation_side") == "left")
            return TextConfig(made, reads_pairs=components.reads_pairs)
    except UnsupportedError as error:
        advice = ("transformers writes no tokenizer.json for this class: tokenize with it, and pass the ids to forward"
                  if kind in _WITHOUT_FILE else "To encode sentences, write a tokenizer.json with transformers: "
                  "AutoTokenizer.from_pretrained(folder).save_pretrained(folder)")
        LOG.warning("%s: %s. The model therefore takes token ids only. %s", folder, error, advice)
        return None


def _class_of(settings: TokenizerSettings) -> str:
    """Return the class that a folder names, or that its model_type has, without "Fast"; "" if it names none.

    For a folder with code of its own, the result is a text for the message, which is the name of no class.
    """
    if (settings.values.get("auto_map") or {}) != {}:
        return "of remote code"
    named = settings.values.get("tokenizer_class", settings.config.get("tokenizer_class"))
    if named is None:
        model_type = settings.config.get("model_type")
        return DEFAULTS.get(model_type, "") if isinstance(model_type, str) else ""
    return named.removesuffix("Fast") if isinstance(named, str) else ""


def _roles(components: Components, settings: TokenizerSettings) -> dict[str, str]:
    """Return {role: text of the special token} of the roles in the templates, such as "cls"; raises `WeightsError`."""
    words = {word.partition(":")[0] for word in " ".join(components.template).split()} - {"A", "B"}
    return {name: settings.token(f"{name}_token", components.tokens[f"{name}_token"]["content"])["content"]
            for name in words}
