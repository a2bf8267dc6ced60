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

ANSWERED = {
    # transformers
    "chat G": "this model has no chat template; pass template=",
    "serve G": "and this model is for a Generator",
    "serve E --memory disk": "invalid choice: 'disk'",
    "serve E --port 99999": "--port must be from 0 to 65535",
    "serve E --uds s --port 80": "--uds and --host or --port both say where to listen",
    "serve E --served-model-name ''": "--served-model-name is empty",
    "serve E --api-key-file absent": "--api-key-file: absent cannot be read",
    "generate G --prompt cat --max-length 3": "has no option --max-length",
    "generate G --prompt cat --min-new-tokens 3": "In Python, generate has min_new_tokens for it",
    "classify C f.txt --batch-size 8": "has no option --batch-size",
    "classify C a.csv": "into a .jsonl file",
    "classify C --text-column text a.jsonl": "has no option --text-column",
    "answer A f.txt": "a question, a tab and the",
    "translate S f.txt --src_lang en --tgt_lang de": "has no language",
    # sentence-transformers
    "encode E f.txt": "the form is: engine encode MODEL [FILE] -o OUTPUT",
    "encode E f.txt v.npy": "-o/--output",
    "encode E a.csv -o v.npy": "engine embed MODEL FILES -o FOLDER reads",
    "encode E f.txt -o v.pt": "must be - or be named",
    "encode E f.txt a.txt -o v.npy": "engine encode reads one file; engine embed MODEL FILES -o FOLDER reads many",
    "encode E f.txt -o v.npy --batch-size 4": "In Python, encode has batch_size for it",
    "encode E f.txt -o v.npy --truncate-dim 4": "In Python, encode has truncate_dim",
    "embed E f.txt": "-o/--output",
    "embed E -o out": "give a model and files of rows",
    "rerank R f.txt": "give the query of the documents with --query",
    "rank R f.txt": "give the query of the documents with --query",
    "rank R cats f.txt": "unrecognized arguments: f.txt",
    # llama.cpp
    "-m G -p cat": "the command comes first",
    "generate R -hf org/name": "-hf org/name and R both give the model; leave one of them out",
    "generate G --prompt cat --color": "--help lists",
    "convert G new.gguf": "must be named *.npz",
    # whisper
    "transcribe R a.wav --model tiny": "--model tiny and R both give the model; leave one of them out",
    "transcribe W a.wav -osrt": "--srt writes it to standard output, and -o FILE to a file",
    "transcribe W a.wav --word_timestamps True": "or --timestamps\n",
    "transcribe W": "engine transcribe MODEL AUDIO",
    "transcribe a.wav W": "a.wav is no model",
    # CTranslate2, and slips
    "convert E": "engine convert E out.npz",
    "convert E new.npz --force": "has no option --force",
    "translate S --src f.txt": "has no option --src",
    "encod E f.txt": "did you mean encode?",
    "": "required: COMMAND",
    "generate G -p cat -n 5 --max-new-tokens 6": "-n 5 and --max-new-tokens 6 contradict each other; give one of them",
    "generate G -p cat -n 5 --max-new 6": "-n 5 and --max-new 6 contradict each other",
    "generate G -p cat -n 5 --max-tokens 6": "-n 5 and --max-tokens 6 contradict each other",
    "generate -m G -p cat --model E": "-m G and --model E both give the model",
    "generate G f.txt -i rows.txt": "f.txt and -i rows.txt both give the file",
    "generate G -i f.txt -i rows.txt": "f.txt and -i rows.txt both give the file",
    "generate G -p cat -n x": "argument -n: invalid int value: 'x'",
    "generate G -p cat -n -1": "engine generate: -n must be an int of at least 1, not -1\n",
    "generate G -p cat -n 2 -t 0": "engine generate: -t must be an int of at least 1, not 0\n",
    "generate G -p cat -n 2 --do-sample --beam-size 2": "--do-sample needs --beam-size 1, not 2",
    "fetch C": "'C' is here already, and is no name of a model on the hub",
    "generate G . -n 2": "'.' is a folder; expected a file of UTF-8 text",
    "generate G -p cat -n": "argument -n: expected one argument",
    "generate G -p cat -n5": "generate has no option -n5; write -n 5",
    "generate G -p cat --max-tok 5": "generate has no option --max-tok",
    "generate G -p cat 'the cat'": "--prompt comes in place of a file; leave out 'the cat'",
    "generate G promts.txt": "'promts.txt': no such file",
    "generate G './my prompts'": "'./my prompts': no such file",
    "encode E f.txt -o v.npy --normalize-embeddings False --normalize": "contradict each other",
    "classify C --return-all-scores maybe -k 2": "contradict each other",
    "tag T f.txt --grouped-entities=maybe": "expected True or False, not 'maybe'",
    "doctor -m G": "doctor has no option -m",
    "chat G f.txt": "'f.txt' is the name of a file or a folder here",
    "chat G 'Hello you' -p cat": "--prompt comes in place of a text without an option",
    "chat G ' '": "the message is empty",
    "embed E a.jsonl -o out9 --colum text": "",
    "info nowhere": "nowhere",
    "generate G --max-new-tokens x --prompt cat": "invalid int value: 'x'",
    "encode E none.txt -o v.npy": "'none.txt': no such file; expected a file of UTF-8 text",
    "bench": "engine bench MODEL",
    "compare E --precision int8": "the form is: engine compare MODEL --data DATA",
    "calibrate C": "--data FILE",
    "encode E f.txt -o v.npy --precision int3": "'int3' is no precision here; choose float32",
}  # fmt: skip
"""What standard error says of each of these lines; "" for a line that runs."""


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
                       "a.jsonl": '{"text": "a cat"}\n'}.items():
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
def test_it_is_answered_with_the_right_form(folder, monkeypatch, capsys, line):
    monkeypatch.chdir(folder)
    status, error = typed(line, capsys)
    assert ANSWERED[line] in error
    assert (status == 0) == (ANSWERED[line] == "")
