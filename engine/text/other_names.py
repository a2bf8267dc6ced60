"""What other libraries call the methods and attributes of a tokenizer."""

from __future__ import annotations

from collections.abc import Mapping

from ..base.other_names import CHAT

_TOKENS = "token(id) gives the text of a token, and token_id(token) its id"
_SPECIAL = "special_tokens has the special tokens with their ids"
_FOLDER = "the tokenizer is that of the model's folder"

METHODS: Mapping[str, str] = {
    "apply_chat_template": CHAT,
    "chat_template": CHAT,
    **dict.fromkeys(("convert_ids_to_tokens", "convert_tokens_to_ids", "id_to_token", "token_to_id"), _TOKENS),
    **dict.fromkeys(("tokenize", "encode_plus", "batch_encode_plus", "encode_batch"),
                    "encode(text) gives the ids of one text, and tokenize(texts) of an Engine those of several"),
    "batch_decode": "decode(ids) gives one text",
    "decode_batch": "decode(ids) gives one text",
    "convert_tokens_to_string": "join(tokens) does it",
    **dict.fromkeys(("pad_token", "pad_token_id", "eos_token", "eos_token_id", "bos_token", "bos_token_id", "cls_token",
                     "cls_token_id", "sep_token", "sep_token_id", "unk_token", "unk_token_id", "mask_token",
                     "mask_token_id", "all_special_ids", "all_special_tokens"), _SPECIAL),
    "model_max_length": "limit has the most tokens of a text",
    **dict.fromkeys(("vocab_size", "get_vocab", "vocab"), "config.vocab_size of the model is the number of tokens"),
    **dict.fromkeys(("from_pretrained", "from_file", "save_pretrained", "save", "add_tokens", "add_special_tokens",
                     "truncation_side", "padding_side", "enable_truncation", "enable_padding"), _FOLDER),
}
"""What to do in place of a method or an attribute that a `Tokenizer` does not have."""
