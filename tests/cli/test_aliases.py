"""Test that lines of other programs are ours, and that the help lists every name that is taken."""

import re
import shlex

import pytest

from engine.cli.main import main, parsers
from engine.cli.other_options import COMMANDS as OTHER_COMMANDS
from engine.cli.other_options import FILE, MODEL, OPTIONS, other_names
from engine.cli.parsing import parse

COMMANDS = parsers()[1]
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
    ("generate M --do-sample False --stream=True", "generate M --stream"),
    ("chat M --do-sample true hi", "chat M --do-sample hi"),
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


@pytest.mark.parametrize("name", ["fetch", "pull"])
def test_help_of_a_command_may_come_first(name, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["help", name])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("usage: engine fetch ")


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
