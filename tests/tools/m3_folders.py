"""Write folders such as BAAI/bge-m3: one of sentence-transformers with two linear maps beside, and its texts.

The model is tests/golden/heads/bge_m3, which tests/golden/make/bge_m3.py makes. Nothing here needs the engine.
"""

import shutil
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

from . import head_texts as texts
from .module_folders import write_modules
from .paths import HEADS
from .tiny_models import write_json

GOLDEN = HEADS / "bge_m3"
LIMIT = 96
QUERIES = ("Who lives in Berlin?", "a", "", "Anna 😀 lives 🏠", "<mask> and </s>, <s><pad>[SEP] a",
           texts.sentence(1, 12))
DOCUMENTS = (*texts.TEXTS[:5], "", "Anna Anna anna, Berlin Berlin.", "陈 lives in 东京 today", texts.sentence(3, 90),
             texts.sentence(4, 300))
TOKENIZER = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": LIMIT, "cls_token": "<s>",
             "bos_token": "<s>", "eos_token": "</s>", "sep_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>",
             "mask_token": {"__type": "AddedToken", "content": "<mask>", "lstrip": True}}


def write_m3(folder: Path) -> Path:
    """Write the files that BAAI/bge-m3 has on the hub."""
    shutil.copytree(GOLDEN, folder)
    (folder / "expected.npz").unlink(missing_ok=True)
    shutil.copy(HEADS / "tokenizers" / "unigram.json", folder / "tokenizer.json")
    write_json(folder / "tokenizer_config.json", TOKENIZER)
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": LIMIT, "do_lower_case": False})
    write_json(folder / "1_Pooling" / "config.json", {
        "word_embedding_dimension": 24, "pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False,
        "pooling_mode_max_tokens": False, "pooling_mode_mean_sqrt_len_tokens": False})
    write_modules(folder, [("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", "2_Normalize")])
    write_json(folder / "config_sentence_transformers.json", {"__version__": {"sentence_transformers": "2.2.2"}})
    return folder


@cache
def folder_of_m3() -> Path:
    """Return the folder, which tests read and do not change."""
    return write_m3(Path(mkdtemp(prefix="m3-")) / "bge-m3")
