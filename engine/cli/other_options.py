"""Say what to type in place of an option that the command line lacks, where another library has it."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import fields
from inspect import signature
from typing import Any

from ..base.errors import listed, nearest
from ..base.other_names import CALLS, OtherName
from ..interface.engine import Engine
from ..interface.generator import Generator
from ..interface.other_names import LOAD
from ..interface.reranker import Reranker
from ..interface.transcriber import Transcriber
from ..model.generation_config import GenerationConfig

MODEL_FIRST = "the model is the first argument, without an option"
_FILE = "the file is the second argument, without an option"
_TALK = "engine chat MODEL is a talk, with the template of the model"


def _option(name: str) -> str:
    return f"{name} is the same"


OPTIONS: Mapping[str, Mapping[str, str]] = {
    "": {"-m": MODEL_FIRST, "-hf": MODEL_FIRST, "--model": MODEL_FIRST, "-t": _option("--threads"), "-i": _FILE,
         "--input": _FILE,
         "-o": "the report goes to standard output; write > FILE at the end"},
    "convert": dict.fromkeys(("--outtype", "--quantization", "--quantize", "-q"), _option("--precision")),
    "encode": {"--normalize-embeddings": _option("--normalize")},
    "classify": {"-k": _option("--top-k")},
    "answer": {"-q": _option("--question"), "-c": _option("--context"), "-k": _option("--top-k")},
    "rank": {"-q": _option("--query"), "-d": _option("--document"), "--documents": _option("--document"),
             "-k": _option("--top-k")},
    "generate": {**dict.fromkeys(("-cnv", "--conversation", "-sys", "--system-prompt", "--chat-template"), _TALK),
                 **dict.fromkeys(("-c", "--ctx-size"), LOAD["n_ctx"].advice), "-ngl": LOAD["n_gpu_layers"].advice,
                 "-p": _option("--prompt"), "-n": _option("--max-new-tokens"), "-s": _option("--seed"), "-f": _FILE,
                 "--file": _FILE},
    "chat": {**dict.fromkeys(("-sys", "--system-prompt"), _option("--system")), "-n": _option("--max-new-tokens"),
             "--chat-template": "--template takes a file with the template", "-s": _option("--seed"),
             "--chat-template-file": _option("--template"), "-p": "type the message, or pipe it: echo TEXT | engine "
             "chat MODEL", **dict.fromkeys(("-c", "--ctx-size"), LOAD["n_ctx"].advice),
             "-ngl": LOAD["n_gpu_layers"].advice,
             **dict.fromkeys(("-cnv", "--conversation"), "engine chat is a conversation; leave it out")},
    "translate": {"-n": _option("--max-new-tokens"), "-f": _FILE, "--file": _FILE,
                  **{name: _option("--source-language") for name in ("--src-lang", "--source-lang", "--from")},
                  **{name: _option("--target-language") for name in ("--tgt-lang", "--target-lang", "--to")}},
    "transcribe": {"-f": "the recordings follow the model, without an option", "-l": _option("--language"),
                   "--word-timestamps": _option("--words"), "--output-dir": "--output takes the path of a file",
                   "--output-format": "--json, --srt and --vtt are the formats",
                   "-osrt": _option("--srt"), "-ovtt": _option("--vtt"), "-oj": _option("--json"),
                   "-otxt": "the text goes to standard output; -o FILE writes a file"},
    "serve": {
        **dict.fromkeys(("--model-id", "--model-name-or-path"), MODEL_FIRST), "--hostname": _option("--host"),
        "-p": _option("--port"), "--uds-path": _option("--uds"), "--served-name": _option("--served-model-name"),
        "--alias": _option("--served-model-name"), "--dtype": _option("--precision"), "--engine": _option("--backend"),
        "--api-key": "a key in a command line is seen by all users of the machine; write it into a file, and give "
                     "--api-key-file, or set the variable ENGINE_API_KEY",
        "--no-mmap": "--memory copy is the same",
        "--payload-limit": _option("--max-body-bytes"), "--disable-http2": "there is only HTTP/1.1",
        **dict.fromkeys(("--max-num-batched-tokens", "--batch-size", "-b", "-ub", "--ubatch-size"),
                        "--max-batch-tokens bounds what is computed at a time, in tokens"),
        **dict.fromkeys(("--max-concurrent-requests", "--max-num-seqs", "--max-queue", "-np", "--parallel"),
                        "requests are admitted by their tokens; --max-wait bounds how long the first answer waits"),
        **dict.fromkeys(("--max-client-batch-size", "--max-batch-requests"),
                        "a list of any length is served; --max-body-bytes bounds a request"),
        **dict.fromkeys(("--auto-truncate", "--default-prompt", "--default-prompt-name"),
                        "a request says it, in the fields truncate and prompt_name"),
        **dict.fromkeys(("--cors-allow-origin", "--allowed-origins", "--permissive-cors"),
                        "pages of other origins are refused; let a proxy allow them"),
        **dict.fromkeys(("--ssl-keyfile", "--ssl-certfile", "--ssl-key-file", "--ssl-cert-file"),
                        "let a proxy such as nginx or Caddy do TLS"),
        **dict.fromkeys(("--prometheus-port", "--metrics", "--enable-metrics"), "GET /metrics has them"),
        **dict.fromkeys(("--json-output", "--log-format", "--log-level"), "the log is lines of JSON on standard error"),
        **dict.fromkeys(("--tokenization-workers", "--workers", "--num-workers"),
                        "--threads bounds the threads, and one process serves all clients"),
        **dict.fromkeys(("--embedding", "--embeddings", "--rerank", "--reranking", "--runner"),
                        "the files of the model say what it is for, or --kind does"),
        **dict.fromkeys(("--pooling", "--pooling-method"), "the files of the model say how its tokens are pooled"),
        **dict.fromkeys(("--max-model-len", "--ctx-size", "-c"), "the files of the model say how long a text may be")},
}
"""What to type in place of an option of another command line, by our command; "" is for all. These options are no
arguments of `CALLS`, or are other options than arguments."""


PYTHON: Mapping[str, Callable[..., Any]] = {
    "encode": Engine.encode, "classify": Engine.classify, "tag": Engine.tag, "answer": Engine.answer,
    "rank": Reranker.rank, "generate": Generator.generate, "chat": Generator.chat, "translate": Generator.translate,
    "transcribe": Transcriber.transcribe}
"""The method that a command calls, which has arguments that the command lacks."""
_AT_CALL = LOAD["batch_size"].advice

COMMANDS: Mapping[str, str] = {name: ours for ours, names in {
    "engine chat MODEL does it": ("talk", "conversation", "conversational"),
    "engine generate MODEL --prompt TEXT does it": ("run", "complete", "completion", "cli", "text-generation"),
    "engine fetch NAME does it": ("download", "pull", "get"),
    "engine doctor does it": ("env", "environment"),
    "engine convert MODEL out.npz does it": ("quantize", "export", "save"),
    "engine encode MODEL FILE -o vectors.npy does it": (
        "embeddings", "embedding", "vectorize", "sentence-similarity", "feature-extraction"),
    "engine rank MODEL FILE --query TEXT does it": ("rerank", "reranking"),
    "engine tag MODEL FILE does it": ("ner", "token-classification"),
    "engine classify MODEL FILE does it": ("predict", "text-classification", "sentiment-analysis"),
    "engine answer MODEL FILE does it": ("qa", "question-answering"),
    "engine translate MODEL FILE does it": ("summarize", "summarization", "translation", "text2text-generation"),
    "engine transcribe MODEL RECORDING does it": ("asr", "speech", "whisper", "automatic-speech-recognition"),
    "engine bench MODEL does it": ("benchmark", "speed"),
    "engine --version does it": ("version",),
    "engine serve MODEL does it": ("server", "start", "api", "v2", "text-embeddings-router"),
}.items() for name in names}
"""What to type in place of a command of another command line."""


def advice_on_command(typed: str, commands: Iterable[str]) -> str:
    """Return the end of the message about a command that there is not."""
    if typed in COMMANDS:
        return f"; {COMMANDS[typed]}"
    return nearest(typed, commands)


def unknown_options(command: argparse.ArgumentParser, name: str, arguments: Sequence[str]) -> list[str]:
    """Return the typed options that a command lacks. name: that of the command.

    An option of another library may look like one of ours with its value behind it: -osrt of whisper.cpp is not -o srt.
    """
    known = {option for action in command._actions for option in action.option_strings}
    of_others = {*OPTIONS[""], *OPTIONS.get(name, {})} - known
    before = arguments[: arguments.index("--")] if "--" in arguments else arguments
    typed = [argument.partition("=")[0] for argument in before if re.match("--?[A-Za-z][^ ]*$", argument)]

    def is_ours(option: str) -> bool:       # a long one may be cut short, and a short one have its value behind it
        return any(ours.startswith(option) for ours in known) if option.startswith("--") else option[:2] in known

    return [option for option in dict.fromkeys(typed) if option in of_others or not is_ours(option)]


def advice_on_options(command: argparse.ArgumentParser, name: str, unknown: Sequence[str]) -> str:
    """Return a message about options that a command lacks: which of ours does the same, or what there is in Python."""
    return "\n  ".join(f"{name} has no option {option}{_advice(command, name, option)}" for option in unknown)


def _advice(command: argparse.ArgumentParser, name: str, typed: str) -> str:
    """Return the end of the message about an option."""
    argument = typed.lstrip("-").replace("-", "_")
    spelled = f"--{argument.replace('_', '-')}" if typed.startswith("--") else typed
    if advice := OPTIONS.get(name, {}).get(spelled) or OPTIONS[""].get(spelled):
        return f"; {advice}"
    options = {action.dest: action.option_strings[-1] for action in command._actions if action.option_strings}
    if argument in options:
        return f"; {options[argument]} is the same"
    row, function = _row(name, argument)
    if (row is None or row.advice == _AT_CALL) and argument in _in_python(name):
        return f". In Python, {PYTHON[name].__name__} has {argument} for it"
    if row is None:
        return nearest(typed, options.values()) or f"; engine {name} --help lists the options"
    if row.ours is None:
        return f". In Python: {row.advice}"
    if row.ours == "path":
        return f"; {MODEL_FIRST}"
    if row.ours in options:
        return f"; {options[row.ours]} is the same"
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
