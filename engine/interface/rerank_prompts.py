"""The prompts of language models that rank, for `Reranker`: their pieces of text, and the tokens that answer.

A prompt is a list of pieces. Each is tokenized apart, as the code that the models were trained with does, so that no
token reaches from one piece into the next. The piece with {document} ends with it; a long document is cut there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..base.errors import InputError, shown

PLACES = ("{instruction}", "{query}", "{document}")
"""The placeholders of a template, in this order."""

QWEN3 = ('<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct '
         'provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n'
         "<Instruct>: {instruction}\n<Query>: {query}\n<Document>: {document}"
         "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n")
"""The template that Qwen3-Reranker was trained with."""


@dataclass(frozen=True)
class RerankPrompt:
    """The pieces of a prompt with placeholders, and the tokens that answer it."""

    pieces: tuple[str, ...]
    answers: tuple[str, ...] = ("yes", "no")
    """The token that means "relevant", and perhaps a second one that means "not relevant"."""
    is_known: bool = False
    """Whether it is one of `KNOWN`, whose pieces contain all special tokens, so that the tokenizer adds none."""

    @property
    def place(self) -> int:
        """The index of the piece with the document."""
        return next(i for i, piece in enumerate(self.pieces) if piece.endswith(PLACES[-1]))


_BGE_TASK = ("Given a query A and a passage B, determine whether the passage contains an answer to the query by "
             "providing a prediction of either 'Yes' or 'No'.")
_MXBAI_TASK = ("You are a search relevance expert who evaluates how well documents match search queries. For each "
               "query-document pair, carefully analyze the semantic relationship between them, then provide your "
               "binary relevance judgment (0 for not relevant, 1 for relevant).\nRelevance:")
KNOWN = {
    "bge-reranker-v2-gemma": RerankPrompt(
        ("<bos>", "A: {query}", "\n", "B: {document}", "\n", _BGE_TASK), answers=("Yes",), is_known=True),
    "mxbai-rerank-v2": RerankPrompt(
        ("<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\n"
         "<|im_start|>user\n", "query: {query}", "\n", "document: {document}", "\n", _MXBAI_TASK,
         "<|im_end|>\n<|im_start|>assistant\n"), answers=("1", "0"), is_known=True),
}
"""The prompts of published models, by the names that `template` takes for them."""


def prompt_of(template: Any) -> RerankPrompt:
    """Return the prompt for a template, or for the name of a known one; raises `InputError`."""
    if isinstance(template, str) and template in KNOWN:
        return KNOWN[template]
    counts = [template.count(place) for place in PLACES] if isinstance(template, str) else []
    if not counts or counts[0] > 1 or counts[1:] != [1, 1] or any(
            template.index(place) > template.index(PLACES[-1]) for place in PLACES if place in template):
        raise InputError("template must be a text with {query} and {document} once each, perhaps {instruction} once, "
                         f"and {{document}} after the others, or one of {', '.join(KNOWN)}, not {shown(template)}")
    start, place, end = template.partition(PLACES[-1])
    return RerankPrompt((start + place, end) if end else (start + place,))


def fill_in(pieces: Sequence[str], instruction: str, query: str) -> list[str]:
    """Return pieces with the instruction and the query filled in, and without the placeholder of the document."""
    # The pieces are split at {query} first, so that placeholders inside of the query stay as they are.
    around_query = [piece.removesuffix(PLACES[2]).split(PLACES[1]) for piece in pieces]
    return [query.join(part.replace(PLACES[0], instruction) for part in parts) for parts in around_query]
