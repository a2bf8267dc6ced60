"""Test that options and files come in any order, for every command."""

import re
import shlex
from itertools import permutations

import pytest

from engine.cli.main import main, parsers
from engine.cli.other_options import COMMANDS as OTHER_COMMANDS
from engine.cli.other_options import FILE, MODEL, OPTIONS, other_names
from engine.cli.parsing import parse

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
    (["transcribe", "M", "a.wav", "-osrt"], "has no option -osrt; --srt writes it to standard output, and -o FILE"),
    (["encode", "M", "a.txt", "b.txt", "-o", "-"], "b.txt; engine encode reads one file; engine embed MODEL FILES -o"),
    (["embed", "--verify", "M", "a.csv", "-o", "out"], "'M' is no number of rows; write --verify=ROWS, or --verify at"),
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


SAME = [
    ("download org/name", "fetch org/name"), ("pull org/name --dtype int8 --packed", "fetch org/name --packed "
     "--precision int8"), ("talk M", "chat M"), ("get -hf org/name", "fetch org/name"),
    ("server --model M --hostname h -p 1", "serve M --host h --port 1"), ("serve --model-id M", "serve M"),
    ("text-embeddings-router --model-id M --uds-path s", "serve M --uds s"), ("v2 --model-id M", "serve M"),
    ("serve -m M --alias a --served-name b", "serve M --served-model-name a --served-model-name b"),
    ("serve M --payload-limit 9 --dtype int8", "serve M --max-body-bytes 9 --precision int8"),
    ("serve M --metrics --json-output --device cpu", "serve M"),
    ("generate -m M -p hi -n 5 --temp 0 -s 1 -t 2", "generate M --prompt hi --max-new-tokens 5 --temperature 0 --seed "
     "1 --threads 2"),
    ("generate M -p -1 -n=-1", "generate M --prompt -1 --max-new-tokens -1"),
    ("generate --hf-repo M --prompts a b --stream", "generate M --prompt a --prompt b --stream"),
    ("generate M --text a --texts b c", "generate M --prompt a --prompt b --prompt c"),
    ("generate M --max-tokens 5 --repeat-penalty 2 --n-threads 3",
     "generate M --max-new-tokens 5 --repetition-penalty 2 --threads 3"),
    ("generate M -p ''", "generate M --prompt ''"),
    ("generate M --max_tokens=5 --beam-size 2", "generate M --max-new-tokens 5 --num-beams 2"),
    ("generate --model-path M --load-in-8bit --threads 1", "generate M --precision int8 --threads 1"),
    ("generate M --load-in-8bit False --n-gpu-layers 0", "generate M"),
    ("generate M -threads 2 --do_sample True", "generate M --threads 2 --do-sample"),
    ("generate M --do_sample False --compute-type default --intra-threads 0", "generate M"),
    ("generate M --compute_type int8_float32", "generate M --precision int8"),
    ("generate M -i f.txt", "generate M f.txt"), ("generate -i f.txt M", "generate M f.txt"),
    ("generate --input=f.txt --model=M -- ", "generate M f.txt"),
    ("chat M -p hi -sys s -n 4 --chat-template-file t -cnv", "chat M --prompt hi --system s --max-new-tokens 4 "
     "--template t"),
    ("chat --model M hi", "chat M hi"), ("chat -cnv M hi", "chat M hi"), ("serve --metrics M", "serve M"),
    ("generate --use-cache M f.txt --use_cache=True", "generate M f.txt"),
    ("chat M --temp 1", "chat M --temperature 1"),
    ("translate M --src_lang en --to de -f f.txt", "translate M f.txt --source-language en --target-language de"),
    ("translate M --texts a b --from en", "translate M --text a --text b --source-language en"),
    ("translate M --source de", "translate M --source-language de"),        # ours, cut short
    ("asr -m W -f a.wav -l auto", "transcribe W a.wav"), ("whisper a.wav --model W --fp16 False --language en",
     "transcribe W a.wav --language en"),
    ("transcribe W -i a.wav b.wav --word_timestamps True --beam_size 5", "transcribe W b.wav a.wav --words --num-beams "
     "5"),
    ("transcribe W a.wav --word_timestamps False --without_timestamps False", "transcribe W a.wav --timestamps"),
    ("rerank M -q a -d b -d c -k 1", "rank M --query a --document b --document c --top-k 1"),
    ("rank M --query a --docs b c --top_n 2", "rank M --query a --document b --document c --top-k 2"),
    ("qa M -q a -c b --topk 2", "answer M --question a --context b --top-k 2"),
    ("classify M --return-all-scores", "classify M --top-k 0"), ("classify M -k 3 --texts a", "classify M --top-k 3 "
     "--text a"),
    ("ner M --sentences a b --grouped-entities False", "tag M --text a --text b --aggregation-strategy none"),
    ("vectorize M --texts a b -o - --normalize_embeddings", "encode M --text a --text b -o - --normalize"),
    ("encode M f.txt -output v.npy", "encode M f.txt --output v.npy"),
    ("embed --model M -i a.csv -o out --dimensions 8", "embed M --input a.csv -o out --truncate-dim 8"),
    ("convert --model M --outfile o.npz --outtype q8_0", "convert M -o o.npz --precision q8_0"),
    ("convert -m M o.npz -q int8", "convert M o.npz --precision int8"),
    ("benchmark --model M -t 1", "bench M --threads 1"), ("info --model M", "info M"),
    ("compare -m M --data d", "compare M --data d"), ("environment", "doctor"),
]
"""Lines as others type them, and ours."""


@pytest.mark.parametrize(("theirs", "ours"), SAME)
def test_what_means_the_same_is_taken(theirs, ours):
    assert vars(parse(*parsers(), shlex.split(theirs))) == vars(parse(*parsers(), shlex.split(ours)))


def test_every_other_name_is_in_the_help_once(capsys):
    for name, command in COMMANDS.items():
        with pytest.raises(SystemExit):
            main([name, "--help"])
        rows, _, names = capsys.readouterr().out.partition("Other names that mean the same: ")
        own = {option for action in command._actions for option in action.option_strings}
        for typed in (each for found in other_names(command, name).values() for each in found):
            assert typed not in own
            assert not re.search(rf"^ +{typed}\b", rows, re.MULTILINE)
            assert len(re.findall(rf"(?<![\w-]){typed}(?![\w-])", names)) == 1, typed
        assert "--load-in-8bit for --precision int8" in " ".join(names.split()) or "--load-in" not in names
    with pytest.raises(SystemExit):
        main(["--help"])
    assert "download, pull, get for fetch" in " ".join(capsys.readouterr().out.split())


def test_every_other_name_is_a_name_of_something(capsys):
    options = {option for command in COMMANDS.values() for action in command._actions
               for option in action.option_strings}
    for rows in OPTIONS.values():
        for typed, row in rows.items():
            assert (row.ours is None) == bool(row.advice), typed
            assert row.ours in (None, MODEL, FILE) or row.ours in options, typed
    for typed, row in OTHER_COMMANDS.items():
        assert typed not in COMMANDS
        assert row.ours in (None, "--version", "--help", *COMMANDS), typed


def test_help_has_the_files_and_the_options(capsys):
    for arguments in (["encode", "--help"], ["encode", "M", "-o", "-", "-h"]):
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        out = capsys.readouterr().out
        assert ended.value.code == 0
        assert "model [file]" in out
        assert "UTF-8 text, one sentence per line" in out
