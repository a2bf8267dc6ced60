"""Test command lines as people type them, and as other libraries do: each runs, or names the right form."""

import shlex

import pytest

from engine import save
from engine.cli.main import main

from ..tools.encoders import save_encoder
from ..tools.generators import language_model, translator
from ..tools.head_models import folder_of
from ..tools.sound_files import wav
from ..tools.speech import recording, timed
from ..tools.tiny_models import random_model
from ..tools.tiny_text import tiny_text

pytest.importorskip("tokenizers")
pytest.importorskip("pyarrow")
pytest.importorskip("uvicorn")

RUN = [
    # encode
    "encode E f.txt -o v.npy", "encode --output=v.npy E f.txt", "encode -ov.npy E f.txt", "encode E f.txt -o -",
    "encode --normalize --threads 1 E -o v.jsonl f.txt", "encode E f.txt -o v.csv", "encode E -o - --text 'the cat'",
    "encode E --text cat --text dog -o v.npy", "encode E f.txt --prompt-name q -o v.npy",
    "encode E f.txt --prec int8 -o -", "encode E -o v.npy -- f.txt", "encode E f.txt -o v.npy --prompt 'query: '",
    # embed
    "embed E rows.txt -o out1", "embed -o out2 E rows.txt f.txt", "embed E --input rows.txt --output out3",
    "embed E rows.txt -o out4 --normalize --json",
    # heads
    "classify C f.txt", "classify C --top-k 2 f.txt", "classify --top-k 0 C f.txt", "classify C f.txt -o c.jsonl",
    "classify C --text 'I love it'", "classify -o c.jsonl --jsonl C texts.jsonl", "classify C texts.jsonl",
    "tag T f.txt", "tag T --aggregation-strategy none f.txt", "tag --text 'Anna lives in Berlin.' T",
    "tag T f.txt --stride 4 -o t.jsonl", "answer A --question 'Who?' f.txt",
    "answer --question Who? --context 'Anna.' A", "answer A asked.tsv", "answer A --top-k 2 asked.tsv -o b.jsonl",
    "rank R --query cats f.txt", "rank --query cats R f.txt --top-k 1",
    "rank R f.txt --query cats --return-documents -o r.jsonl", "rank R --query cats --document purr --document roar",
    # generate and translate
    "generate G f.txt", "generate G --max-new-tokens 2 f.txt", "generate --max-new-tokens=2 G f.txt",
    "generate G --prompt 'the cat'", "generate --prompt 'the cat' G --max-new-tokens 2 --stream",
    "generate G f.txt -o g.txt --num-beams 2", "generate G -e --prompt 'the cat\\n'",
    "generate --do-sample --temperature 0.7 --top-k 3 --seed 1 G f.txt --max-new 2",
    "generate G --json f.txt --cache int8 --max-new-tokens 2", "translate S f.txt", "translate S --num-beams 2 f.txt",
    "translate --text 'the cat' S -o t.txt",
    # transcribe
    "transcribe W a.wav", "transcribe W --language en a.wav", "transcribe --timestamps W a.wav a.wav",
    "transcribe W a.wav -o a.srt", "transcribe W -o a.json a.wav --timestamps",
    "transcribe W a.wav --json --task transcribe",
    # models and measurements
    "convert E new.npz", "convert E -o new.npz", "convert --precision int8 E new.npz",
    "convert -o new.npz --precision bf16 E",
    "compare E --data f.txt --precision int8", "compare --precision int8 E --data f.txt --threads 1",
    # as people type them to other programs
    "env", "ner T f.txt", "generate --model G --prompt cat --n-predict 3 -t 2", "qa A -q Who? -c 'Anna.'",
    "classify C f.txt --return_all_scores False", "encode E 'A sentence.' -o -", "encode E --texts cat dog -o v.npy",
    "transcribe W a.wav --fp16 False --beam_size 5 --compute_type int8", "translate S 'the cat'", "tag T 'Anna lives.'",
    "generate -m G 'Once upon a time' -n 3", "classify C 'I love it'", "answer A -q Who? 'Anna lives in Berlin.'",
    "generate G -p cat -ngl 0 --device cpu --use-cache --dtype auto", "sentiment-analysis C f.txt -k=2 --top-k 2",
]  # fmt: skip

ANSWERED = [
    # transformers
    "chat G", "serve E --port 99999", "serve E --uds s --port 80", "serve E --served-model-name ''",
    "serve E --api-key-file absent", "generate G --prompt cat --max-length 3",
    "generate G --prompt cat --min-new-tokens 3", "classify C f.txt --batch-size 8", "classify C a.csv",
    "classify C --text-column text a.jsonl", "answer A f.txt", "translate S f.txt --src_lang en --tgt_lang de",
    # sentence-transformers
    "encode E f.txt", "encode E f.txt v.npy", "encode E a.csv -o v.npy", "encode E f.txt -o v.pt",
    "encode E f.txt a.txt -o v.npy", "encode E f.txt -o v.npy --batch-size 4",
    "encode E f.txt -o v.npy --truncate-dim 4", "embed E f.txt", "embed E -o out", "rerank R f.txt", "rank R f.txt",
    "rank R cats f.txt",
    # llama.cpp
    "-m G -p cat", "generate R -hf org/name", "generate G --prompt cat --color", "convert G new.gguf",
    # whisper
    "transcribe R a.wav --model tiny", "transcribe W a.wav -osrt", "transcribe W a.wav --word_timestamps True",
    "transcribe W", "transcribe a.wav W",
    # CTranslate2, and slips
    "convert E", "convert E new.npz --force", "translate S --src f.txt", "encod E f.txt", "",
    "generate G -p cat -n 5 --max-new-tokens 6", "generate G -p cat -n 5 --max-new 6",
    "generate G -p cat -n 5 --max-tokens 6", "generate -m G -p cat --model E", "generate G f.txt -i rows.txt",
    "generate G -i f.txt -i rows.txt", "generate G -p cat -n x", "generate G -p cat -n -1",
    "generate G -p cat -n 2 -t 0", "generate G -p cat -n 2 --do-sample --beam-size 2", "fetch C", "generate G . -n 2",
    "generate G -p cat -n", "generate G -p cat -n5", "generate G -p cat --max-tok 5", "generate G -p cat 'the cat'",
    "generate G promts.txt", "generate G './my prompts'",
    "encode E f.txt -o v.npy --normalize-embeddings False --normalize", "classify C --return-all-scores maybe -k 2",
    "tag T f.txt --grouped-entities=maybe", "doctor -m G", "chat G f.txt", "chat G 'Hello you' -p cat", "chat G ' '",
    "embed E a.jsonl -o out9 --colum text", "info nowhere", "generate G --max-new-tokens x --prompt cat",
    "encode E none.txt -o v.npy", "bench", "compare E --precision int8", "calibrate C",
    "summarize E", "encode", "rank", "generate G --temprature 1", "generate G --num-hypotheses 3",
    "encode E x -o - --device cuda", "encode E f.txt a.txt -o -",
    "-m G generate", "generate G --max-tokesn 1", "generate G --timeuot 1", "serve G --api-kye x",
    "transcribe W a.wav --word-timestmps", "transcribe W a.wav --timestamps word",
    "transcribe W --timestamps=word a.wav", "generate 'tell me' m.gguf", "transcribe a.wav b.wav m.npz",
    "chat hi there m.gguf", "chat G hi there",
    "embed --verify E a.csv -o out", "tag T a.txt b.txt", "convert E a.npz -o b.npz", "convert E new.npz --bounded",
    # precisions
    "encode E f.txt -o - --precision fp16", "generate G --precision auto", "convert E o.npz --precision int5",
    "convert E o.npz --precision bf16x3",
    # files of other formats, and what is no name of a file
    "encode E a.Parquet -o -", "tag T a.json", "answer A a.parquet", "rank R a.tsv --query q", "generate G a.jsonl",
    "translate S a.csv", "calibrate C --data a.csv", "compare E --data a.jsonl --precision int8",
    "convert E o.npz --precision int4 --calibration a.csv", "classify C f.txt -o a.csv",
    "generate G f.txt -o a.parquet",
    "transcribe W a.wav -o o.csv", "encode E -o out", "encode E -o out.txt", "encode E -o out.npz",
    "encode E -o no/dir/e.npy", "convert E no/dir/e.npz",
    "compare E --precision int8 --data /dev/null", "generate G lines.txt", "generate G some/lines",
    "generate G 'my lines.TXT'", "generate G '~/my lines'", "generate G '/a b'", "generate G a.b",
    # what does not go together, and what a model cannot do
    "generate G f.txt --prompt 'the cat'", "generate G f.txt --stream --json", "generate G f.txt --stream -o x.txt",
    "generate G f.txt --num-beams 0", "translate G f.txt", "generate G --prompt cat --long-context",
    "chat G --long-context", "bench G --long-context", "answer A a.jsonl --question a", "classify C f.txt --text a",
    "classify C a.jsonl --text a", "rank R a.jsonl --query a", "rank R a.jsonl", "rank T f.txt --query a",
    "classify T f.txt", "classify C wrong.jsonl", "classify C half.jsonl", "rank R numbers.jsonl",
    # calibrate
    "calibrate C --data d.tsv -o m.txt", "calibrate C --data d.tsv --picture m.png",
    "calibrate C --data d.tsv -o none/m.npz", "calibrate C --data d.tsv --task tag", "calibrate E --data d.tsv",
    "calibrate A --data answers.tsv --picture r.svg", "classify C --text cat --coverage 0",
    "classify C --text cat --coverage 1", "compare C --calibration --data d.tsv", "compare C --data f.txt",
    "compare C --data d.tsv --coverage 0.8 --precision int8", "calibrate C --data f.txt -o o.npz",
    "calibrate C --data empty.tsv", "calibrate C --data unknown.tsv", "calibrate C --data number.tsv",
    "calibrate C --data one.tsv -o o.npz", "calibrate C --data three.tsv", "calibrate C --data nan.tsv",
]  # fmt: skip
"""Lines whose status and standard error are recorded."""
VARIED = {"encode E E -o out.npy": "engine encode: E is not UTF-8 text",
          "serve E --memory disk": "invalid choice: 'disk'",
          "encode E f.txt -o v.npy --precision int3": "'int3' is no precision here; choose float32"}
"""Parts of answers that depend on the version of Python, on the CPU, or on the bytes of a file."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("typed")
    save_encoder(random_model(tiny_text(prompts={"q": "query: "})), folder / "E.npz")
    save(language_model(tiny_text()), folder / "G.npz")
    save(translator(tiny_text()), folder / "S.npz")
    save(timed(), folder / "W.npz")
    for name in "EGSW":
        (folder / f"{name}.npz").rename(folder / name)
    for name, task in (("C", "classify"), ("T", "tag"), ("A", "answer"), ("R", "pairs")):
        (folder / name).symlink_to(folder_of(f"bert_{task}"))
    for name, text in {"f.txt": "the cat\na dog\n", "rows.txt": "the cat sat\n", "texts.jsonl": '{"text": "a cat"}\n',
                       "asked.tsv": "Who?\tAnna lives in Berlin.\n", "a.csv": "text\na cat\n",
                       "a.jsonl": '{"text": "a cat"}\n', "wrong.jsonl": "[\n",
                       "half.jsonl": '{"text": "a"}\n{"text": "\\ud800"}\n',
                       "numbers.jsonl": '{"query": "a", "documents": ["b", 1]}\n',
                       "d.tsv": "dull\ta\nlively\tb\n" * 15, "answers.tsv": "the\tWho?\tthe cat\n" * 30,
                       "empty.tsv": "", "unknown.tsv": "1\ta\n" * 29 + "nothing\ta\n", "number.tsv": "3\ta\n" * 30,
                       "one.tsv": "dull\ta\n" * 30, "three.tsv": "dull\ta\nlively\tb\ndull\tc\n",
                       "nan.tsv": "nan\ta\n" * 30}.items():
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "a.wav").write_bytes(wav((recording(1) * 20000).astype("<i2").tobytes()))
    return folder


def typed(line, capsys):
    """Run a line; return its exit status and what standard error says."""
    try:
        status = main(shlex.split(line))
    except SystemExit as ended:
        status = ended.code
    return status, capsys.readouterr().err


@pytest.mark.parametrize("line", RUN)
def test_it_runs(folder, monkeypatch, capsys, line):
    monkeypatch.chdir(folder)
    assert typed(line, capsys) == (0, "")


@pytest.mark.parametrize("line", ["generate G", "classify C -", "transcribe W -", "encode E -o v.npy", "rank R -q cat"])
def test_standard_input_that_is_closed_is_an_error(folder, monkeypatch, capsys, line):
    monkeypatch.chdir(folder)
    monkeypatch.setattr("sys.stdin", None)
    status, error = typed(line, capsys)
    assert (status, error.count("\n")) == (1, 1)
    assert "standard input is closed; give" in error


@pytest.mark.parametrize("line", ANSWERED)
def test_it_is_answered_with_the_right_form(folder, monkeypatch, capsys, snapshot, line):
    monkeypatch.chdir(folder)
    before = {path.name for path in folder.iterdir()}
    status, error = typed(line, capsys)
    assert f"{status}: {error}" == snapshot
    assert {path.name for path in folder.iterdir()} - before <= {"out9"}       # the folder of a job


@pytest.mark.parametrize("line", VARIED)
def test_it_names_what_may_be_given(folder, monkeypatch, capsys, line):
    monkeypatch.chdir(folder)
    status, error = typed(line, capsys)
    assert VARIED[line] in error
    assert status != 0
