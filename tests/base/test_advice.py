"""Each row of the table of advice is what calls, attributes and the command line answer, and what the page shows."""

import contextlib
import io
import re
from itertools import product

import pytest

import engine
from engine import Engine, Generator, InputError, Reranker, Transcriber
from engine.base.advice.attributes import ATTRIBUTES, CALLED, CONFIG, MODULE, SET, TOKENIZER
from engine.base.advice.calls import CALLS
from engine.base.advice.commands import COMMANDS, FILE, MODEL, OPTIONS
from engine.base.arguments import use_our_names
from engine.cli.main import parsers
from engine.cli.other_options import other_names, row_of
from engine.cli.parsing import parse
from engine.model.config import ModelConfig
from engine.speech.windows import DOUBT, NO_SPEECH
from engine.text.tokenizer import Tokenizer

from . import advice

LOADED = (Engine, Generator, Reranker, Transcriber)
OF_ENGINES = ("prompt", "prompt_name", "batch_size", "activation_fn", "apply_softmax")
ALSO_OURS = {("transcribe", "return_timestamps"), ("transcriptions", "return_timestamps"), ("stream", "prompt"),
             *product(("load", "__init__"), ("cache_tokens",)), *product(("predict", "rank"), OF_ENGINES)}
"""Other names that are our names elsewhere: of a setting that `transcribe` makes itself, and of an argument, such as
those that `predict` of an Engine has and that of a Reranker lacks."""
PARSER, PARSERS = parsers()
OTHER = object()
"""A value that is none of those in the table."""


@pytest.mark.parametrize("function", CALLS)
def test_arguments(function):
    """A name is taken for an argument that the function has, with its value or ours; or the error has the advice."""
    known = advice.arguments_of(function)
    assert known
    for name, row in CALLS[function].items():
        assert name not in known or (function, name) in ALSO_OURS, name
        if row.ours is not None:
            assert row.ours in known, name
            for theirs, ours in [(OTHER, OTHER), *row.values]:
                given = {name: theirs}
                with pytest.warns(FutureWarning, match=name) if row.earlier else contextlib.nullcontext():
                    assert [*use_our_names(function, given, ())] == [row.ours]
                assert given == {row.ours: ours}
            continue
        assert row.advice == row.advice.strip(" ;.") != ""
        for value in row.neutral:
            given = {name: value}
            assert use_our_names(function, given, ()) == given == {}
        with pytest.raises(InputError) as error:
            use_our_names(function, {name: OTHER}, ())
        spoken = "load" if function == "__init__" else function
        assert str(error.value) == f"{spoken} has no argument {name}; {row.advice}"


def test_thresholds_of_silence_that_change_nothing_are_those_of_the_code():
    rows = CALLS["transcribe"]
    assert NO_SPEECH in rows["no_speech_threshold"].neutral
    assert DOUBT in rows["log_prob_threshold"].neutral


def test_attributes():
    """What an object, a class, a tokenizer or the module lacks is answered with the advice of the table."""
    owners = [(ATTRIBUTES, each) for cls in LOADED for each in (cls, object.__new__(cls))]
    for rows, owner in [*owners, (TOKENIZER, object.__new__(Tokenizer)), (MODULE, engine)]:
        there = {*dir(owner), *vars(owner)}     # a module has the submodules that other tests import
        lacked = [name for name in rows if name not in there]
        assert len(lacked) > 20
        for name in lacked:
            with pytest.raises(AttributeError, match=f" has no attribute '{name}'; {re.escape(rows[name])}$"):
                getattr(owner, name)
    for name, advice_ in CONFIG.items():
        with pytest.raises(AttributeError, match=f" has no attribute '{name}'; {re.escape(advice_)}$"):
            getattr(object.__new__(ModelConfig), name)
    for name in ATTRIBUTES:
        assert any(name not in dir(cls) for cls in LOADED), f"every class has {name}"


@pytest.mark.parametrize("cls", LOADED)
def test_attributes_that_do_not_change_and_calls(cls):
    owner = object.__new__(cls)
    for name, advice_ in SET.items():
        if name in cls._own:
            setattr(owner, name, 1)     # as the load does, once
        with pytest.raises(InputError, match=f"^{name} of a loaded {cls.__name__} .*; {re.escape(advice_)}$"):
            setattr(owner, name, 2)
    with pytest.raises(TypeError, match=re.escape(f"call {CALLED[cls.__name__]}")):
        owner()


def read(words):
    """Return the values of a command line, or what standard error says of it."""
    error = io.StringIO()
    with contextlib.redirect_stderr(error):
        try:
            return vars(parse(PARSER, PARSERS, words))
        except SystemExit:
            return error.getvalue()


NEEDED = {"convert": ["-o", "o.npz"], "encode": ["-o", "v.npy"], "embed": ["-o", "out"], "calibrate": ["--data", "d"],
          "compare": ["--data", "d"], "transcribe": ["./a.wav"]}
"""What a line of a command needs besides the model and the options of a test."""


def line(command, *words):
    """Return the values of a line of a command with these words behind all that it needs."""
    needs = NEEDED.get(command, [])
    return read([command, "M", *([] if {"--output", "--outfile"} & {*words} else needs), *words])


def equal_lines(command, typed, row):
    """Yield pairs of words: as another program has them, and ours."""
    [action] = [each for each in PARSERS[command]._actions if row.ours in each.option_strings]
    if action.nargs == 0:
        yield [typed], [row.ours] if dict(row.values).get(True, True) else []
    elif not row.values or {type(theirs) for theirs, _ in row.values} == {str}:
        value = "int8" if row.ours == "--precision" else next(iter(action.choices)) if action.choices else "8"
        yield [typed, value], [row.ours, value]
    for theirs, ours in row.values:
        yield [typed, str(theirs)], [] if ours in (None, False) else [row.ours] if ours is True else [row.ours, ours]


@pytest.mark.parametrize("command", PARSERS)
def test_options(command):
    """An option of another program is one of ours, or the error has the advice; the help lists all that are taken."""
    parser, rows = PARSERS[command], {**OPTIONS[""], **OPTIONS.get(command, {})}
    arguments = [f"--{name.replace('_', '-')}" for name in (*CALLS.get(command, {}), *CALLS["load"])]
    listed = {typed: ours for ours, names in other_names(parser, command).items() for typed in names}
    for typed in {*rows, *arguments}:
        row = row_of(parser, command, typed)
        if row is None:
            assert typed not in OPTIONS.get(command, {}), f"{typed} is an option of the command, or ours is none"
        elif row.ours is None:
            assert typed not in listed
            said = line(command, f"{typed}=something")
            assert f"has no option {typed}" in said
            assert row.advice in said or f"In Python, {command} has " in said
        elif row.ours == MODEL:
            assert read([command, *NEEDED.get(command, []), typed, "M"]) == line(command)
        elif row.ours == FILE:
            assert line(command, typed, "./a") == line(command, "./a")
        else:
            for theirs, ours in equal_lines(command, typed, row):
                assert isinstance(line(command, *ours), dict), ours
                assert line(command, *theirs) == line(command, *ours)
            assert typed not in listed or listed[typed].startswith(row.ours)
    assert {*listed} <= {*rows, *arguments}


def test_commands():
    for typed, row in COMMANDS.items():
        assert typed not in PARSERS
        assert row.ours in (None, "--version", "--help", *PARSERS), typed
        if row.ours is None:
            assert f"there is no command {typed}; {row.advice}; the commands are" in read([typed, "M"])
        elif row.ours in PARSERS:
            assert read([typed, "--no-such-option"]) == read([row.ours, "--no-such-option"])


def test_the_page_shows_the_table():
    """If this fails, run `python -m tests.base.advice`."""
    text = advice.DOCUMENT.read_text(encoding="utf-8")
    assert text == advice.document()
    names = {name for rows in (*CALLS.values(), ATTRIBUTES, MODULE, TOKENIZER, *OPTIONS.values(), COMMANDS)
             for name in rows}
    assert [name for name in names if f"`{name}`" not in text] == []


def test_lines_of_other_programs_on_the_page_are_ours():
    section = advice.DOCUMENT.read_text(encoding="utf-8").partition("\n## On the command line\n")[2]
    rows = re.findall(r"^\| `engine (.+?)` \| `engine (.+?)` \|$", section, re.MULTILINE)
    assert len(rows) > 10
    for theirs, ours in rows:
        assert read(theirs.split()) == read(ours.split()), theirs


@pytest.mark.parametrize(("advised", "shown"), [
    ('precision="int8" of load, or n_ctx', '`precision="int8"` of load, or `n_ctx`'),
    ("engine generate MODEL --prompt TEXT does it", "`engine generate MODEL --prompt TEXT` does it"),
    ("score(a, f(b)) or -o FILE, and not a-b", "`score(a, f(b))` or `-o` FILE, and not a-b"),
])
def test_names_in_advice_are_code(advised, shown):
    assert advice.coded(advised) == shown
