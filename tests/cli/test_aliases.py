"""Test that lines of other programs are ours, and that the help lists every name that is taken."""

import re
import shlex

import pytest

from engine.cli.main import main, parsers
from engine.cli.other_options import other_names
from engine.cli.parsing import parse

COMMANDS = parsers()[1]
SAME = [
    ("generate -m M -p hi -n 5 --temp 0 -s 1 -t 2", "generate M --prompt hi --max-new-tokens 5 --temperature 0 --seed "
     "1 --threads 2"),
    ("pull org/name --dtype int8 --packed", "fetch org/name --packed --precision int8"),
    ("server --model M --hostname h -p 1", "serve M --host h --port 1"), ("v2 --model-id M", "serve M"),
    ("serve -m M --alias a --served-name b", "serve M --served-model-name a --served-model-name b"),
    ("serve M --metrics --json-output --device cpu", "serve M"), ("serve --metrics M", "serve M"),
    ("generate M -p -1 -n=-1", "generate M --prompt -1 --max-new-tokens -1"),
    ("generate --hf-repo M --prompts a b --stream", "generate M --prompt a --prompt b --stream"),
    ("generate M --text a --texts b c", "generate M --prompt a --prompt b --prompt c"),
    ("generate M -p ''", "generate M --prompt ''"),
    ("generate M --max_tokens=5 --beam-size 2", "generate M --max-new-tokens 5 --num-beams 2"),
    ("generate --model-path M --load-in-8bit --threads 1", "generate M --precision int8 --threads 1"),
    ("generate M -threads 2 --do_sample True", "generate M --threads 2 --do-sample"),
    ("generate M --do-sample False --stream=True", "generate M --stream"),
    ("chat M --do-sample true hi", "chat M --do-sample hi"), ("chat -cnv M hi", "chat M hi"),
    ("generate -i f.txt M", "generate M f.txt"), ("generate --input=f.txt --model=M -- ", "generate M f.txt"),
    ("generate --use-cache M f.txt --use_cache=True", "generate M f.txt"),
    ("translate M --source de", "translate M --source-language de"),        # ours, cut short
    ("asr -m W -f a.wav -l auto", "transcribe W a.wav"), ("whisper a.wav --model W --fp16 False --language en",
     "transcribe W a.wav --language en"),
    ("transcribe W -i a.wav b.wav --word_timestamps True", "transcribe W b.wav a.wav --words"),
    ("rerank M -q a -d b -d c -k 1", "rank M --query a --document b --document c --top-k 1"),
    ("classify M -k 3 --texts a", "classify M --top-k 3 --text a"),
    ("ner M --sentences a b --grouped-entities False", "tag M --text a --text b --aggregation-strategy none"),
    ("encode M f.txt -output v.npy", "encode M f.txt --output v.npy"),
    ("convert -m M o.npz -q int8", "convert M o.npz --precision int8"), ("environment", "doctor"),
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
