"""Hold what other programs and libraries call the options and commands of the command line, and what each becomes.

A name whose meaning is the same is taken, as other names of arguments are in Python; any other is explained.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import fields
from inspect import signature
from typing import Any

from ..base.errors import listed, nearest
from ..base.other_names import CALLS, OtherName, instead, same
from ..interface.engine import Engine
from ..interface.generator import Generator
from ..interface.other_names import LOAD
from ..interface.reranker import Reranker
from ..interface.transcriber import Transcriber
from ..model.generation_config import GenerationConfig

MODEL, FILE = "MODEL", "FILE"
"""The places of the model, and of the file or the recordings behind it, which have no option here."""
_TALK = "engine chat MODEL is a talk, with the template of the model"


def _all(names: str, row: OtherName) -> dict[str, OtherName]:
    """Return one row for several names, with spaces between them."""
    return dict.fromkeys(names.split(), row)


_PRECISION = same("--precision", ("default", None), ("auto", None), ("int8_float32", "int8"), ("int8_bfloat16", "int8"))
_OF_LLAMA_CPP = {"-c": LOAD["n_ctx"], "--ctx-size": LOAD["n_ctx"], "-ngl": LOAD["n_gpu_layers"]}
_OF_A_SEARCH = {"-n": same("--max-new-tokens"), "-s": same("--seed"), "--temp": same("--temperature")}
_WORDS = {"--texts": same("--text"), "--sentences": same("--text")}

OPTIONS: Mapping[str, Mapping[str, OtherName]] = {
    "": {**_all("-m -hf --model --hf-repo", same(MODEL)), "-t": same("--threads"), **_all("-i --input", same(FILE)),
         "-o": instead("the report goes to standard output; write > FILE at the end")},
    "convert": {**_all("--outtype --quantization --quantize -q", _PRECISION), "--outfile": same("--output"),
                **_all("-i --input", same(MODEL)),
                "--output-dir": instead("-o takes the file to write, ending in .npz")},
    "encode": {**_WORDS, "--documents": same("--text"), "--normalize-embeddings": same("--normalize"),
               "-p": instead("--text TEXT gives the text itself, and --prompt what stands in front of each text")},
    "embed": {"-i": same("--input"), "--normalize-embeddings": same("--normalize"),
              **_all("--dimensions --output-dimension", same("--truncate-dim"))},
    "classify": {**_WORDS, "-k": same("--top-k"), "--return-all-scores": same("--top-k", (True, "0"), (False, "1"))},
    "tag": _WORDS,
    "answer": {"-q": same("--question"), "-c": same("--context"), "--contexts": same("--context"),
               "-k": same("--top-k")},
    "rank": {"-q": same("--query"), **_all("-d --documents --docs --passages --texts", same("--document")),
             "-k": same("--top-k")},
    "generate": {**_all("-cnv --conversation -sys --system-prompt --chat-template", instead(_TALK)), **_OF_LLAMA_CPP,
                 **_OF_A_SEARCH, **_all("-p --prompts --text --texts", same("--prompt")), **_all(
                     "-f --file", instead("the file is the second argument, without an option, and each line of it is "
                                          "a prompt"))},
    "chat": {**_all("-sys --system-prompt", same("--system")), **_OF_LLAMA_CPP, **_OF_A_SEARCH, "-p": same("--prompt"),
             "--chat-template": instead("--template takes a file with the template"),
             "--chat-template-file": same("--template"),
             **_all("-cnv --conversation", instead("engine chat is a conversation; leave it out", True))},
    "translate": {**_WORDS, **_OF_A_SEARCH, **_all("-f --file", same(FILE)),
                  **_all("--src-lang --source-lang --from", same("--source-language")),
                  **_all("--tgt-lang --target-lang --to", same("--target-language"))},
    "transcribe": {"-f": same(FILE), "-l": same("--language", ("auto", None)), "--word-timestamps": same("--words"),
                   "--output-dir": instead("--output takes the path of a file"),
                   "--output-format": instead("--json, --srt and --vtt are the formats"),
                   **{f"-o{form}": instead(f"--{name} writes it to standard output, and -o FILE to a file")
                      for form, name in (("srt", "srt"), ("vtt", "vtt"), ("j", "json"))},
                   "-otxt": instead("the text goes to standard output; -o FILE writes a file")},
    "serve": {
        "--model-id": same(MODEL), "--hostname": same("--host"), "-p": same("--port"), "--uds-path": same("--uds"),
        **_all("--served-name --alias", same("--served-model-name")), "--payload-limit": same("--max-body-bytes"),
        "--engine": instead("--backend says what computes"),
        "--api-key": instead("a key in a command line is seen by all users of the machine; write it into a file, and "
                             "give --api-key-file, or set the variable ENGINE_API_KEY"),
         "--no-mmap": same("--memory", (True, "copy"), (False, "map")),
        "--disable-http2": instead("there is only HTTP/1.1", True),
        **_all("--max-num-batched-tokens --batch-size -b -ub --ubatch-size", instead(
            "--max-batch-tokens bounds what is computed at a time, in tokens")),
        **_all("--max-concurrent-requests --max-num-seqs --max-queue -np --parallel", instead(
            "requests are admitted by their tokens; --max-wait bounds how long the first answer waits")),
        **_all("--max-client-batch-size --max-batch-requests", instead(
            "a list of any length is served; --max-body-bytes bounds a request")),
        **_all("--auto-truncate --default-prompt --default-prompt-name", instead(
            "a request says it, in the fields truncate and prompt_name")),
        **_all("--cors-allow-origin --allowed-origins --permissive-cors", instead(
            "pages of other origins are refused; let a proxy allow them")),
        **_all("--ssl-keyfile --ssl-certfile --ssl-key-file --ssl-cert-file", instead(
            "let a proxy such as nginx or Caddy do TLS")),
        "--prometheus-port": instead("GET /metrics has them"),
        **_all("--metrics --enable-metrics", instead("GET /metrics always has them", True)),
        "--json-output": instead("the log is always lines of JSON on standard error", True),
        **_all("--log-format --log-level", instead("the log is lines of JSON on standard error")),
        **_all("--tokenization-workers --workers --num-workers", instead(
            "--threads bounds the threads, and one process serves all clients")),
        **_all("--embedding --embeddings --rerank --reranking --runner", instead(
            "the files of the model say what it is for, or --kind does")),
        **_all("--pooling --pooling-method", instead("the files of the model say how its tokens are pooled")),
        **_all("--max-model-len --ctx-size -c", instead("the files of the model say how long a text may be")),
    },
}
"""What becomes of the options of other programs, by our command; "" is for all. `ours` is an option of the command, or
`MODEL` or `FILE`; a name that ends with s gives an option that may come several times all texts behind it. These names
are no arguments of `CALLS`, or are other options than arguments. Each becomes ours only where the command has it."""


PYTHON: Mapping[str, Callable[..., Any]] = {
    "encode": Engine.encode, "classify": Engine.classify, "tag": Engine.tag, "answer": Engine.answer,
    "rank": Reranker.rank, "generate": Generator.generate, "chat": Generator.chat, "translate": Generator.translate,
    "transcribe": Transcriber.transcribe}
"""The method that a command calls, which has arguments that the command lacks."""
_AT_CALL = LOAD["batch_size"].advice

COMMANDS: Mapping[str, OtherName] = {
    **_all("talk conversation conversational", same("chat")),
    **_all("complete completion text-generation", same("generate")),
    **_all("run cli", instead("engine generate MODEL --prompt TEXT and engine chat MODEL do it")),
    **_all("download pull get", same("fetch")),
    **_all("env environment", same("doctor")),
    **_all("quantize export save", instead("engine convert MODEL out.npz does it")),
    **_all("vectorize", same("encode")),
    **_all("embeddings embedding sentence-similarity feature-extraction", instead(
        "engine encode MODEL FILE -o vectors.npy does it")),
    **_all("rerank reranking", same("rank")),
    **_all("ner token-classification", same("tag")),
    **_all("text-classification sentiment-analysis", same("classify")),
    **_all("predict", instead("engine classify MODEL FILE does it")),
    **_all("qa question-answering", same("answer")),
    **_all("translation text2text-generation", same("translate")),
    **_all("summarize summarization", instead("engine translate MODEL FILE does it")),
    **_all("asr whisper automatic-speech-recognition", same("transcribe")),
    **_all("speech", instead("engine transcribe MODEL RECORDING does it")),
    **_all("benchmark speed", same("bench")),
    **_all("version", same("--version")),
    **_all("help", same("--help")),
    **_all("server v2 text-embeddings-router", same("serve")),
    **_all("start api", instead("engine serve MODEL does it")),
}
"""What becomes of the commands of other command lines."""


def advice_on_command(typed: str, commands: Iterable[str]) -> str:
    """Return the end of the message about a command that there is not."""
    if typed in COMMANDS:
        return f"; {COMMANDS[typed].advice}"
    return nearest(typed, commands)


def other_commands() -> dict[str, list[str]]:
    """Return the other names of commands that are taken, by the command that each stands for."""
    found: dict[str, list[str]] = {}
    for typed, row in COMMANDS.items():
        if row.ours is not None:
            found.setdefault(row.ours, []).append(typed)
    return found


def names_for(found: Mapping[str, Sequence[str]]) -> str:
    """Return other names by ours as one list, for the help."""
    return "; ".join(f"{', '.join(typed)} for {ours}" for ours, typed in found.items())


def is_ours(command: argparse.ArgumentParser, option: str) -> bool:
    """Return whether a command has an option: a long one may be cut short, a short one have its value behind it."""
    known = {name for action in command._actions for name in action.option_strings}
    if option.startswith("--"):
        return any(name.startswith(option) for name in known)
    return option[:2] in known


def unknown_options(command: argparse.ArgumentParser, name: str, arguments: Sequence[str]) -> list[str]:
    """Return the options that a command lacks. name: that of the command. arguments: with our names of options.

    An option of another library may look like one of ours with its value behind it: -osrt of whisper.cpp is not -o srt.
    """
    known = {option for action in command._actions for option in action.option_strings}
    of_others = {*OPTIONS[""], *OPTIONS.get(name, {})} - known
    before = arguments[: arguments.index("--")] if "--" in arguments else arguments
    typed = [argument.partition("=")[0] for argument in before if is_option(argument)]
    return [option for option in dict.fromkeys(typed) if option in of_others or not is_ours(command, option)]


def is_option(argument: str) -> bool:
    """Return whether an argument is an option by its form; one with a space, or a negative number, is a value."""
    return re.match("--?[A-Za-z][^ ]*$", argument) is not None


def row_of(command: argparse.ArgumentParser, name: str, typed: str) -> OtherName | None:
    """Return what becomes of an option of another program; None for one of ours, and for one that nobody has.

    `ours` of the row is an option of the command, `MODEL` or `FILE`. An option of ours, also one cut short, is never
    another's; but the names in `OPTIONS` are.
    """
    own = {option for action in command._actions for option in action.option_strings}
    spelled = f"--{typed.lstrip('-').replace('_', '-')}" if len(typed) > 2 else typed
    if typed in own:
        return None
    for rows in (OPTIONS.get(name, {}), OPTIONS[""]):
        for each in (typed, spelled):
            if each in rows and each not in own and _has(command, rows[each].ours):
                return rows[each]
    if len(typed) > 2 and spelled in own:
        return same(spelled)
    if is_ours(command, typed):
        return None
    row, _ = _row(name, spelled.lstrip("-").replace("-", "_"))
    if row is None or row.ours is None:
        return row
    ours = MODEL if row.ours == "path" else f"--{row.ours.replace('_', '-')}"
    return same(ours, *row.values) if _has(command, ours) else None


def _has(command: argparse.ArgumentParser, ours: str | None) -> bool:
    """Return whether a command has an option, or a place; True for None, the row of an option that is explained."""
    places = [action.dest for action in command._actions if not action.option_strings]
    if ours == MODEL:
        return bool(places)
    if ours == FILE:
        return places[1:] in (["file"], ["audio"])
    return ours is None or any(ours in action.option_strings for action in command._actions)


def other_names(command: argparse.ArgumentParser, name: str) -> dict[str, list[str]]:
    """Return the names of other programs that a command takes, by the option or place that each stands for."""
    candidates = [*OPTIONS.get(name, {}), *OPTIONS[""],
                  *(f"--{each.replace('_', '-')}" for each in (*CALLS.get(name, {}), *LOAD))]
    places = [action.dest.upper() for action in command._actions if not action.option_strings]
    spoken = dict(zip((MODEL, FILE), places, strict=False))
    found: dict[str, list[str]] = {}
    for typed in dict.fromkeys(candidates):
        row = row_of(command, name, typed)
        if row is None or row.ours is None:
            continue
        flags = [ours for theirs, ours in row.values if theirs is True]     # what a flag stands for
        if flags != [False]:
            found.setdefault(" ".join([spoken.get(row.ours, row.ours), *filter(None, flags)]), []).append(typed)
    return found


def advice_on_options(command: argparse.ArgumentParser, name: str, unknown: Sequence[str]) -> str:
    """Return a message about options that a command lacks: what to do instead, or what there is in Python."""
    return ". ".join(f"{name} has no option {option}{_advice(command, name, option)}" for option in unknown)


def _advice(command: argparse.ArgumentParser, name: str, typed: str) -> str:
    """Return the end of the message about an option."""
    row = row_of(command, name, typed)
    if row is not None and row.advice and row in (*OPTIONS.get(name, {}).values(), *OPTIONS[""].values()):
        return f"; {row.advice}"
    if re.match(r"-[A-Za-z]\d+$", typed) and row_of(command, name, typed[:2]) is not None:
        return f"; write {typed[:2]} {typed[2:]}"
    argument = typed.lstrip("-").replace("-", "_")
    row, function = _row(name, argument)
    if (row is None or row.advice == _AT_CALL) and argument in _in_python(name):
        return f". In Python, {PYTHON[name].__name__} has {argument} for it"
    if row is None:
        return nearest(typed, [option for action in command._actions for option in action.option_strings])
    if row.ours is None:
        return f". In Python: {row.advice}"
    return f". In Python, {function} has {listed([row.ours])} for it"


def _in_python(name: str) -> Collection[str]:
    """Return the arguments of the method that a command calls, with the settings of a generation."""
    if name not in PYTHON:
        return ()
    parameters = [each.name for each in signature(PYTHON[name]).parameters.values() if each.kind.name == "KEYWORD_ONLY"]
    return [*parameters, *(each.name for each in fields(GenerationConfig) if name in ("chat", "generate", "translate"))]


def _row(name: str, argument: str) -> tuple[OtherName | None, str]:
    """Return what becomes of an argument of another library, and the function that a command calls with it."""
    for function, rows in ((name, CALLS.get(name, {})), ("load", LOAD)):
        if argument in rows and not rows[argument].earlier:
            return rows[argument], function
    return None, ""
