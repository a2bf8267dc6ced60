"""Test that options and files come in any order, for every command."""

from itertools import permutations

import pytest

from engine.cli.main import main, parsers

TYPED = {
    "convert": (["M", "out.npz"], [["--precision", "int8"], ["--bounded"]]),
    "fetch": (["org/name"], [["--packed"], ["-o", "out.npz"]]),
    "info": (["M"], [["--kind", "encode"], ["--revision", "v1"]]),
    "doctor": ([], [["--json"]]),
    "encode": (["M", "f.txt"], [["-o", "v.npy"], ["--normalize"], ["--threads", "2"]]),
    "embed": (["M", "a.csv", "b.csv"], [["-o", "out"], ["--json"], ["--verify"]]),
    "classify": (["M", "f.txt"], [["--top-k", "2"], ["--jsonl"]]),
    "tag": (["M", "f.txt"], [["--stride", "2"], ["--jsonl"]]),
    "answer": (["M", "f.txt"], [["--top-k", "2"], ["--handle-impossible-answer"]]),
    "rank": (["M", "f.txt"], [["--query", "q"], ["--return-documents"], ["--precision", "int8"]]),
    "generate": (["M", "f.txt"], [["--seed", "-1"], ["--json"], ["--temperature=0.5"]]),
    "translate": (["M", "f.txt"], [["--num-beams", "2"], ["--target-language", "de"]]),
    "chat": (["M", "hi"], [["--system", "-"], ["--seed=-1"], ["--trust-template"]]),
    "serve": (["M"], [["--port", "0"], ["--max-wait=5"], ["--precision", "int8"]]),
    "transcribe": (["M", "a.wav", "b.wav"], [["-o", "x.txt"], ["--timestamps"]]),
    "calibrate": (["M"], [["--data", "d.tsv"], ["--no-bias"]]),
    "bench": (["M"], [["--threads", "1"], ["--backend", "reference"]]),
    "compare": (["M"], [["--data", "d.tsv"], ["--precision", "int8"]]),
}


def orders(files, options):
    """Yield the arguments in every order that keeps the order of the files."""
    for order in permutations(range(len(files) + len(options))):
        if [i for i in order if i < len(files)] == [*range(len(files))]:
            yield [word for i in order for word in ([files[i]] if i < len(files) else options[i - len(files)])]


COMMANDS = parsers()[1]


def test_every_command_is_here():
    assert COMMANDS.keys() == TYPED.keys()


@pytest.mark.parametrize("name", TYPED)
def test_options_and_files_come_in_any_order(name):
    files, options = TYPED[name]
    expected = vars(COMMANDS[name].parse([*files, *(word for option in options for word in option)]))
    for typed in orders(files, options):
        # --verify takes the word behind it for a number of rows.
        if not {*files}.intersection(typed[typed.index("--verify") + 1 :][:1] if "--verify" in typed else []):
            assert vars(COMMANDS[name].parse(typed)) == expected, typed


def test_a_file_whose_name_begins_with_a_hyphen_comes_after_two():
    args = COMMANDS["encode"].parse(["-o", "-", "--", "M", "-file"])
    assert (args.model, args.file) == ("M", "./-file")
    assert COMMANDS["encode"].parse(["-o", "-", "--", "M", "-"]).file == "-"


@pytest.mark.parametrize(("arguments", "message"), [
    ([], "required: COMMAND"),
    (["summarize", "M"], "there is no command summarize; engine translate MODEL FILE does it; the commands are conv"),
    (["encod", "M"], "there is no command encod (did you mean encode?); the commands are"),
    (["-m", "M", "generate"], "no option -m before the command; the command comes first, such as: engine generate"),
    (["encode"], "-o/--output; the form is: engine encode MODEL [FILE] -o OUTPUT\nengine encode --help lists"),
    (["rank"], "model; the form is: engine rank MODEL [FILE]\nengine rank"),
    (["generate", "M", "--temprature", "1"], "no option --temprature (did you mean --temperature?)\n"),
    (["generate", "M", "--num-hypotheses", "3"], "In Python, generate has num_return_sequences for it\n"),
    (["encode", "M", "x", "-o", "-", "--device", "cuda"], "no option --device. In Python: the engine runs on CPUs"),
    (["transcribe", "M", "a.wav", "-osrt"], "has no option -osrt; --srt writes it to standard output, and -o FILE"),
    (["encode", "M", "a.txt", "b.txt", "-o", "-"], "b.txt; engine encode reads one file; engine embed MODEL FILES -o"),
    (["embed", "--verify", "M", "a.csv", "-o", "out"], "'M' is no number of rows; write --verify=ROWS, or --verify at"),
    (["generate", "M", "--max-tokesn", "1"], "no option --max-tokesn (did you mean --max-new-tokens?)\n"),
    (["generate", "M", "--timeuot", "1"], "(did you mean --timeout?). In Python, generate has timeout for it\n"),
    (["serve", "M", "--api-kye", "x"], "(did you mean --api-key?); a key in a command line is seen by all users"),
    (["transcribe", "M", "a.wav", "--word-timestmps"], "no option --word-timestmps (did you mean --words?)\n"),
    (["transcribe", "M", "a.wav", "--timestamps", "word"], "--timestamps has no value here; leave out word, and"),
    (["transcribe", "M", "--timestamps=word", "a.wav"], "and type --words for the times of words\n"),
    (["generate", "tell me", "m.gguf"], "the model comes first; type: engine generate m.gguf 'tell me'\n"),
    (["transcribe", "a.wav", "b.wav", "m.npz"], "the model comes first; type: engine transcribe m.npz a.wav b.wav\n"),
    (["chat", "hi", "there", "m.gguf"], "the model comes first; type: engine chat m.gguf 'hi there'\n"),
    (["chat", "M", "hi", "there"], "a text of several words stands in quotes, as in: engine chat M 'hi there'\n"),
    (["tag", "M", "a.txt", "b.txt"], "unrecognized arguments: b.txt; the form is: engine tag MODEL [FILE]\nengine tag"),
])
def test_a_wrong_line_is_answered_with_the_right_form(arguments, message, capsys):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.splitlines()) == 2
    assert error.endswith(" --help lists the options\n" if arguments and arguments[0] in COMMANDS else "commands\n")


def test_help_has_the_files_and_the_options(capsys):
    for arguments in (["encode", "--help"], ["encode", "M", "-o", "-", "-h"]):
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        out = capsys.readouterr().out
        assert ended.value.code == 0
        assert "model [file]" in out
        assert "UTF-8 text, one sentence per line" in out
