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


def test_help_has_the_files_and_the_options(capsys):
    for arguments in (["encode", "--help"], ["encode", "M", "-o", "-", "-h"]):
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        out = capsys.readouterr().out
        assert ended.value.code == 0
        assert "model [file]" in out
        assert "UTF-8 text, one sentence per line" in out
