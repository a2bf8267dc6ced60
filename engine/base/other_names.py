"""Names that other libraries have for arguments and methods of the engine, and its own names of earlier versions.

The libraries are transformers, llama-cpp-python, CTranslate2, faster-whisper, openai-whisper, fastembed,
sentence-transformers, FlagEmbedding, torch, and the API of OpenAI. An argument whose meaning is the same is accepted
under the other name. For every other argument one line says which of ours does it, or that there is nothing like it.
Each package has a module other_names.py with the tables of its functions, and `arguments.py` reads them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class OtherName:
    """What becomes of an argument under a name that the function does not have."""

    ours: str | None = None
    """The name of the same argument here, which gets the value; None if there is none."""
    values: tuple[tuple[Any, Any], ...] = ()
    """Pairs of a value and the value that means the same for `ours`; every other value stays as it is."""
    earlier: bool = False
    """Whether it is a name of an earlier version of the engine, which gives a `FutureWarning`."""
    advice: str = ""
    """For a name without `ours`: what to do instead."""
    neutral: tuple[Any, ...] = (None,)
    """For a name without `ours`: the values that ask for nothing that the engine does not do; they are accepted."""


def same(ours: str, *values: tuple[Any, Any]) -> OtherName:
    """Return the row of an argument that has another name here, with the values that have other names."""
    return OtherName(ours, values)


def instead(advice: str, *neutral: Any) -> OtherName:
    """Return the row of an argument that the engine lacks. neutral: values besides None that change nothing."""
    return OtherName(advice=advice, neutral=(None, *neutral))


def nothing(advice: str, *neutral: Any) -> OtherName:
    """Return the row of an argument that the engine lacks, and has nothing in place of. neutral: as for `instead`."""
    return instead(f"there is nothing like it; {advice}", *neutral)


LACKS = "there is nothing like it; leave it out"
CHAT = "chat(messages) of a Generator answers them, and apply_chat_template(messages) returns the prompt"
"""What to do with the messages of a chat."""
NO_TEMPLATE = ("the model has no chat template; chat(messages, template=...) takes one, or write the prompt as one "
               r"text with the special tokens of the model, such as '<|im_start|>user\nHello<|im_end|>\n"
               r"<|im_start|>assistant\n', which are read as special tokens")
"""What to do with the messages of a chat where the model has no template."""
BATCHES = "the engine makes the batches; max_rows and max_batch_tokens of load bound them"
AS_ARGUMENTS = "give the settings as arguments of the call"
PADDING = "nothing is padded, so pass the ids of each sequence alone, in a list"
FOLDER = "the settings are in the model's folder; change them there"
LIMIT = ("with_text(max_seq_length=...) returns an engine with another limit on tokens, and truncation=False makes it "
         "an error that a text is too long")
"""What to do in place of a limit on the tokens of a text in a call."""
CPU = "the engine runs on CPUs, or on a GPU with backend=\"cuda\" of load alone, which is experimental; leave it out"

POSITIONAL: dict[str, str] = {}
"""What to do about too few or too many arguments of a function, by its name. The packages of the functions fill it."""

CALLS: dict[str, Mapping[str, OtherName]] = {}
"""The rows of each function, by the name of the function. The packages of the functions register them."""


def register(tables: Mapping[str, Mapping[str, OtherName]]) -> None:
    """Add the rows of functions to `CALLS`; raises `ValueError` for a function that has other rows already."""
    for function, rows in tables.items():
        if CALLS.setdefault(function, rows) != rows:
            raise ValueError(f"the function {function} has other rows already")
