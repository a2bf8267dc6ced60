"""Make the golden ids of SmolLM2's tokenizer, in a GGUF file, with the packages gguf and regex.

    python -m tests.golden.make.gguf_tokenizer SmolLM2-135M-Instruct.Q4_1.gguf

The reference is written here, without a library of tokenizers: llama.cpp's two patterns for "smollm" split a text, and
each word is joined by the first pair of the list until no pair is left. smollm2_ids.json holds `TEXTS` and their ids.
"""

import json
import sys
from itertools import pairwise

import gguf
import regex

from tests.tools.paths import SMOLLM2_IDS

from .tokenizers import TEXTS

# The patterns that src/llama-vocab.cpp has for LLAMA_VOCAB_PRE_TYPE_SMOLLM, applied one after the other.
PATTERNS = [r"\p{N}", r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"]
MORE = ["<|im_start|>user\nHello 123<|im_end|>\n", "x  =  3;\n\n\tdef f(a, b):\n        return 1e10\n", "٣٤ ½ Ⅻ"]


def characters_of_bytes() -> list[str]:
    """Return GPT-2's printable character for each byte."""
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(byte if byte in kept else next(others)) for byte in range(256)]


def split(words: list[str], pattern: str) -> list[str]:
    """Return the matches of a pattern and the texts between them."""
    parts = []
    for word in words:
        at = 0
        for match in regex.finditer(pattern, word):
            parts += [word[at:match.start()], match[0]]
            at = match.end()
        parts.append(word[at:])
    return [part for part in parts if part]


def main(path: str) -> None:
    """Write the ids."""
    fields = gguf.GGUFReader(path).fields
    tokens, merges, types = (fields[f"tokenizer.ggml.{key}"].contents() for key in ("tokens", "merges", "token_type"))
    ids, ranks = {token: i for i, token in enumerate(tokens)}, {merge: i for i, merge in enumerate(merges)}
    special = [token for token, kind in zip(tokens, types, strict=True) if kind == gguf.TokenType.CONTROL]
    table = characters_of_bytes()

    def joined(word: str) -> list[str]:
        parts = [table[byte] for byte in word.encode()]
        while len(parts) > 1:
            rank, at = min((ranks.get(f"{one} {two}", len(ranks)), i)
                           for i, (one, two) in enumerate(pairwise(parts)))
            if rank == len(ranks):
                break
            parts[at:at + 2] = ["".join(parts[at:at + 2])]
        return parts

    lines = []
    for text in [*TEXTS, *MORE]:
        found = []
        for part in regex.split("(" + "|".join(map(regex.escape, special)) + ")", text):
            if part in special:
                found.append(ids[part])
                continue
            words = [part]
            for pattern in PATTERNS:
                words = split(words, pattern)
            found += [ids[token] for word in words for token in joined(word)]
        lines.append(json.dumps([text, found], ensure_ascii=False))
    SMOLLM2_IDS.write_text("[" + ",\n".join(lines) + "]\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
