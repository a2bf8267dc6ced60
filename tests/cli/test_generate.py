"""`engine generate`, `engine translate`, and `convert` and `info` of models that generate."""

import io
import json
import os
import subprocess
import sys

import numpy as np
import pytest

from engine import Generator, Model, Transformer, load_model, save
from engine.cli.main import main
from engine.model.config import ModelConfig
from engine.model.generation_config import GenerationConfig

from ..tools.decoders import DECODERS, make_weights
from ..tools.paths import GOLDEN
from ..tools.tiny_text import tiny_text

ENCODER = ModelConfig("test", 38, 2, 2, 19, 30, vocab_size=50, max_positions=90)
SETTINGS = GenerationConfig(eos_token_id=[3], decoder_start_token_id=2, max_new_tokens=12,
                            suppress_tokens=list(range(17, 50)))
LINES = ["the cat sat", "a dog ran far and away"]


@pytest.fixture
def translator(tmp_path):
    decoder = DECODERS["2017"]
    save(Model(decoder=Transformer(decoder, make_weights(decoder), tiny_text()),
               encoder=Transformer(ENCODER, make_weights(ENCODER, 1), tiny_text()), generation=SETTINGS),
         tmp_path / "translator.npz")
    return str(tmp_path / "translator.npz")


@pytest.fixture
def language_model(tmp_path):
    config = DECODERS["Llama"]
    save(Model(decoder=Transformer(config, make_weights(config), tiny_text()), generation=SETTINGS),
         tmp_path / "language_model.npz")
    return str(tmp_path / "language_model.npz")


@pytest.fixture
def file(tmp_path):
    (tmp_path / "lines.txt").write_text("\n".join(LINES) + "\n", encoding="utf-8")
    return str(tmp_path / "lines.txt")


def test_translate_writes_a_line_for_each_text(translator, file, capsys):
    assert main(["translate", translator, file, "--num-beams", "2", "--threads", "1"]) == 0
    assert capsys.readouterr().out.splitlines() == Generator.load(translator).translate(LINES, num_beams=2)


def test_generate_writes_json(translator, file, capsys):
    assert main(["generate", translator, file, "--json", "--do-sample", "--seed", "5", "--max-new-tokens", "4"]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    expected = Generator.load(translator).generate(LINES, do_sample=True, seed=5, max_new_tokens=4)
    assert [one["ids"] for one in found] == [one.ids for one in expected]
    assert [one["text"] for one in found] == [one.text for one in expected]
    assert np.allclose([one["score"] for one in found], [one.score for one in expected])


def test_generate_writes_log_probabilities(language_model, file, capsys):
    words = ["generate", language_model, file, "--echo", "--logprobs", "2", "--max-new-tokens"]
    for new in (0, 3):
        assert main([*words, str(new), "--json"]) == 0
        found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        expected = Generator.load(language_model).generate(LINES, max_new_tokens=new, logprobs=2, echo=True)
        assert [one["text"] for one in found] == [one.text for one in expected]
        assert [[(each["id"], each["text"], each["logprob"], len(each["top"])) for each in one["logprobs"]]
                for one in found] == [[(each.id, each.text, each.logprob, len(each.top)) for each in one.logprobs]
                                      for one in expected]
    assert main([*words, "3"]) == 1
    assert "--logprobs is written with --json; add --json" in capsys.readouterr().err


def test_generate_streams(language_model, file, capsys):
    assert main(["generate", language_model, file, "--stream"]) == 0
    expected = Generator.load(language_model).generate(LINES)
    assert capsys.readouterr().out.splitlines() == [one.text for one in expected]


def test_texts_themselves(translator, language_model, file, monkeypatch, capsys):
    first, second = LINES
    assert main(["generate", language_model, "--prompt", first, "--prompt", second, "--max-new-tokens", "3"]) == 0
    expected = [one.text for one in Generator.load(language_model).generate(LINES, max_new_tokens=3)]
    assert capsys.readouterr().out.splitlines() == expected
    assert main(["translate", translator, "--text", first]) == 0
    assert capsys.readouterr().out.splitlines() == Generator.load(translator).translate([first])
    for given in ([], ["-"]):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO("\n".join(LINES).encode())))
        assert main(["generate", language_model, *given, "--max-new-tokens", "3"]) == 0
        assert capsys.readouterr().out.splitlines() == expected


def test_results_in_a_file(language_model, file, tmp_path, capsys):
    out = tmp_path / "out.txt"
    assert main(["generate", language_model, "-o", str(out), file]) == 0
    assert capsys.readouterr().out == ""
    assert out.read_text(encoding="utf-8").splitlines() == [
        one.text for one in Generator.load(language_model).generate(LINES)]


def test_escapes_are_read_when_asked_for(language_model, tmp_path, monkeypatch, capsys):
    asked = []
    monkeypatch.setattr(Generator, "results", lambda self, inputs, **options: asked.append(inputs) or iter([]))
    typed = r"a\nb\t\\n \d"
    assert main(["generate", language_model, "--prompt", typed, "-e"]) == 0
    assert capsys.readouterr().err == ""
    (tmp_path / "in.txt").write_text(typed, encoding="utf-8")
    assert main(["generate", language_model, "--escape", str(tmp_path / "in.txt")]) == 0
    assert asked == [["a\nb\t\\n \\d"]] * 2
    assert main(["generate", language_model, "--prompt", typed]) == 0
    assert asked[-1] == [typed]
    assert r"--prompt has \n as two characters, a backslash and an n; --escape reads it" in capsys.readouterr().err


def test_results_are_written_as_they_finish_and_kept_after_an_interrupt(language_model, file, monkeypatch, capsys):
    results = Generator.results

    def interrupted(self, *args, **options):
        found = results(self, *args, **options)
        yield next(found)
        assert capsys.readouterr().out.splitlines() == [text]
        found.close()
        raise KeyboardInterrupt

    text = Generator.load(language_model).generate(LINES)[0].text
    monkeypatch.setattr(Generator, "results", interrupted)
    assert main(["generate", language_model, file]) == 130
    assert capsys.readouterr().err == "engine generate: interrupted; 1 of 2 results are written\n"


@pytest.mark.parametrize(("command", "part"), [(["generate"], "prompt"), (["generate", "--stream"], "prompt"),
                                               (["translate"], "source")])
def test_a_wrong_line_is_named_before_any_is_computed(language_model, translator, tmp_path, command, part, capsys):
    path = tmp_path / "lines.txt"
    path.write_text("the cat\n" + "the cat " * 50 + "\n", encoding="utf-8")
    model = translator if command == ["translate"] else language_model
    assert main([command[0], model, str(path), "--max-new-tokens", "3", *command[1:]]) == 1
    assert capsys.readouterr() == ("", f"engine {command[0]}: {path}, line 2: the {part} has 102 tokens, but the model "
                                       "reads at most 90; shorten it\n")


def test_output_is_utf_8_whatever_the_environment_says(language_model):
    code = ("import sys; from engine import Generator; from engine.generation.results import Generated\n"
            "from engine.cli.main import main\n"
            "Generator.results = lambda self, *args, **options: iter([Generated([1], 0.0, 'stop', 'd\u00e9j\u00e0')])\n"
            "sys.exit(main(sys.argv[1:]))")
    done = subprocess.run([sys.executable, "-c", code, "generate", language_model, "--prompt", "the cat"],
                          env=os.environ | {"PYTHONIOENCODING": "ascii"}, capture_output=True, check=True)
    assert done.stdout.decode() == "d\u00e9j\u00e0\n"


def test_a_text_in_the_place_of_a_file(language_model, translator, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    expected = Generator.load(language_model).generate(LINES[0]).text
    assert main(["generate", language_model, LINES[0]]) == 0
    assert capsys.readouterr() == (f"{expected}\n", "")
    assert main(["generate", language_model, LINES[0], "--stream"]) == 0
    assert capsys.readouterr() == (f"{expected}\n", "")
    assert main(["translate", translator, LINES[0]]) == 0
    assert capsys.readouterr().out.splitlines() == Generator.load(translator).translate([LINES[0]])
    assert main(["generate", language_model, "cat"]) == 0
    assert capsys.readouterr().err == ("engine generate: there is no file 'cat', so it is read as the text itself\n")
    assert main(["generate", language_model, r"the cat\n"]) == 0
    assert r"the text has \n as two characters" in capsys.readouterr().err
    assert main(["generate", language_model, "the cat " * 50]) == 1
    assert "the text 'the cat the cat" in capsys.readouterr().err


def test_a_file_that_is_there_is_no_text(language_model, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / LINES[0]).write_text(f"{LINES[1]}\n")
    assert main(["generate", language_model, LINES[0]]) == 0
    assert capsys.readouterr() == (f"{Generator.load(language_model).generate(LINES[1]).text}\n", "")


def test_a_warning_is_a_line_without_a_place_in_the_code(language_model):
    command = [sys.executable, "-m", "engine", "generate", language_model, "--prompt", "cat", "--temperature", "0.7"]
    found = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert found.returncode == 0
    assert found.stderr.startswith("engine generate: --temperature 0.7 without --do-sample changes")
    assert len(found.stderr.splitlines()) == 1


@pytest.mark.parametrize("stream", ["2>/dev/full", "2>&-"])
def test_a_warning_that_nobody_can_read_changes_nothing(language_model, stream, capsys):
    """Also not the exit status, which Python changes if what is left in a stream cannot be written at its end."""
    command = ["generate", str(language_model), "--prompt", "cat"]
    assert main(command) == 0
    found = subprocess.run(["bash", "-c", f"exec \"$@\" {stream}", "-", sys.executable, "-m", "engine", *command,
                            "--temperature", "0.7"], capture_output=True, text=True, timeout=60)
    assert (found.returncode, found.stdout) == (0, capsys.readouterr().out)


def test_convert_and_info(translator, tmp_path, capsys):
    out = tmp_path / "out.npz"
    assert main(["convert", translator, str(out), "--generates", "--precision", "int8"]) == 0
    printed, warned = capsys.readouterr()
    assert "--generates does nothing" in warned
    assert "generate, by Generator" in printed
    assert "encoder\n" in printed
    assert "cached k, v" in printed
    assert {part.precision for part in load_model(out, kind="generate").parts.values()} == {"int8"}
    assert Generator.load(out).precision == "int8"
    assert main(["info", str(out)]) == 0
    assert "logits = logits p" in capsys.readouterr().out
    assert main(["info", str(out), "--kind", "encode"]) == 1
    assert "load it with Generator" in capsys.readouterr().err


def test_convert_and_info_of_two_tables_of_positions(tmp_path, capsys):
    folder, out = str(GOLDEN / "decoders" / "phi3_long"), tmp_path / "out.npz"
    assert main(["info", folder]) == 0
    assert "long context       up to 64 tokens with --long-context" in capsys.readouterr().out
    for options, longest in (([], 32), (["--long-context"], 64)):
        assert main(["convert", folder, str(out), *options]) == 0
        assert load_model(out).decoder.config.longest_sequence == longest
