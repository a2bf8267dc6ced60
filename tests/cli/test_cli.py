import io
import json
import re
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

import engine
from engine import Engine, save
from engine.cli.main import main
from engine.weights.parameters import input_heads, parameters_of
from engine.weights.quantize import is_bounded

from ..tools.encoders import convert_encoder, engine_of, load_encoder, save_encoder
from ..tools.generators import language_model, translator
from ..tools.paths import DECODERS
from ..tools.tiny_models import D, hf_folder, hf_tensors, random_model
from ..tools.tiny_text import tiny_text


@pytest.fixture
def model(tmp_path):
    save_encoder(random_model(tiny_text(prompts={"q": "query: "})), tmp_path / "model.npz")
    return str(tmp_path / "model.npz")


def test_convert(tmp_path, capsys):
    folder = hf_folder(tmp_path / "folder")
    assert main(["convert", str(folder), str(tmp_path / "out.npz")]) == 0
    assert "width 12" in capsys.readouterr().out
    converted, original = load_encoder(tmp_path / "out.npz"), load_encoder(folder)
    assert converted.config == original.config
    assert all(np.array_equal(converted.weights[name], array) for name, array in original.weights.items())


def test_convert_writes_the_file_of_either_form(model, tmp_path):
    assert main(["convert", model, "-o", str(tmp_path / "out.npz")]) == 0
    assert load_encoder(tmp_path / "out.npz").config == load_encoder(model).config


def test_convert_wants_an_npz(tmp_path, capsys):
    assert main(["convert", str(hf_folder(tmp_path / "folder")), str(tmp_path / "out.zip")]) == 1
    assert "*.npz" in capsys.readouterr().err
    assert not (tmp_path / "out.zip").exists()


def test_convert_to_int8(model, tmp_path, capsys):
    out = tmp_path / "out.npz"
    assert main(["convert", model, str(out), "--precision", "int8"]) == 0
    assert re.search(r"precision +int8\n", capsys.readouterr().out)
    expected = convert_encoder(load_encoder(model), "int8").weights
    found = load_encoder(out).weights
    assert found.keys() == expected.keys()
    assert all(np.array_equal(found[name], array) for name, array in expected.items())
    assert main(["convert", str(out), str(out), "--precision", "float32"]) == 1
    assert "convert or load the original model" in capsys.readouterr().err
    assert main(["convert", str(out), str(tmp_path / "copy.npz")]) == 0
    assert out.read_bytes() == (tmp_path / "copy.npz").read_bytes()


def test_convert_to_bounded_int8(model, tmp_path):
    out = tmp_path / "out.npz"
    assert main(["convert", model, str(out), "--precision", "int8", "--bounded"]) == 0
    found, config = load_encoder(out).weights, load_encoder(out).config
    linear = [name for name, parameter in parameters_of(config).items() if parameter.kind == "linear"]
    assert all(is_bounded(found[name], input_heads(config, name)) for name in linear)
    full = convert_encoder(load_encoder(model), "int8").weights
    assert any(not np.array_equal(found[name], full[name]) for name in linear)
    assert np.array_equal(found["embeddings.word"], full["embeddings.word"])


def test_convert_to_bfloat16_and_back(model, tmp_path, capsys):
    out = str(tmp_path / "out.npz")
    assert main(["convert", model, out, "--precision", "bfloat16"]) == 0
    assert re.search(r"precision +bfloat16\n", capsys.readouterr().out)
    assert load_encoder(out).weights["embeddings.word"].dtype == np.uint16
    assert main(["convert", out, out, "--precision", "float32"]) == 0
    assert not load_encoder(out).weights["embeddings.word"].view(np.uint32).astype(np.uint16).any()


def test_info_of_tables_that_are_not_as_the_linear_maps(tmp_path, capsys):
    whole, int8 = random_model(), convert_encoder(random_model(), "int8")
    tables = {"embeddings.position": whole.weights["embeddings.position"]}
    weights = {name: array for name, array in int8.weights.items() if name.removesuffix("_scale") not in tables}
    save_encoder(replace(whole, weights=weights | tables), tmp_path / "model.npz")
    assert main(["info", str(tmp_path / "model.npz")]) == 0
    assert "int8, tables in float32 and int8" in capsys.readouterr().out


def test_info(capsys):
    assert main(["info"]) == 0
    out = capsys.readouterr().out
    assert engine.__version__ in out
    for word in ("backend cython", "backend reference", "threads", "by CPU"):
        assert word in out


@pytest.mark.parametrize(("config", "renamed", "rows"), [
    ({"model_type": "roformer"}, {}, ["nearest family     bert: it knows 37 of 37 tensors",
                                      "in the way         model_type 'roformer', which no family here has"]),
    ({"position_embedding_type": "relative_key", "hidden_act": "swiglu"}, {},
     ["in the way         position_embedding_type = 'relative_key' is not supported; only 'absolute' is",
      "in the way         hidden_act 'swiglu' is not supported"]),
    ({}, {"encoder.layer.1.output.dense.weight": "encoder.layer.1.adapter.down.weight"},
     ["unknown tensors    1: encoder.layer.1.adapter.down.weight",
      "missing tensors    1, by their names here: layers.1.ffn.down.weight"]),
])
def test_info_of_a_folder_that_is_refused(tmp_path, capsys, config, renamed, rows):
    tensors = {renamed.get(name, name): array for name, array in hf_tensors("bert").items()}
    assert main(["info", str(hf_folder(tmp_path / "folder", tensors=tensors, **config))]) == 1
    found = capsys.readouterr()
    assert "nearest family     bert" in found.out
    for row in rows:
        assert row in found.out
    assert found.err.startswith("engine info: ")


def test_info_of_a_folder_of_which_nothing_can_be_said(tmp_path, capsys):
    folder = hf_folder(tmp_path / "folder", model_type="bert", hidden_size="wide")
    (folder / "model.safetensors").write_bytes(b"damaged")
    assert main(["info", str(folder)]) == 1
    assert "nearest family" not in capsys.readouterr().out
    (folder / "config.json").write_text("{")
    assert main(["info", str(folder)]) == 1


def test_info_leaves_out_the_kernels_for_tests(monkeypatch, capsys):
    isa = pytest.importorskip("engine.backends.cython_cpu.isa", reason="the compiled kernels are not built")
    monkeypatch.delenv("ENGINE_ISA", raising=False)
    assert main(["info"]) == 0
    assert not re.search(r"\b(wide|amxemulated)\b", capsys.readouterr().out)
    for name in isa.FOR_TESTS:
        if name in isa.available():
            monkeypatch.setenv("ENGINE_ISA", name)
            assert main(["info"]) == 0
            assert f"{name} kernels" in capsys.readouterr().out


@pytest.mark.parametrize(("name", "told"), [
    ("avx512bf16", "bfloat16 by vdpbf16ps, int8 by vpdpbusd"),
    ("avx512vnni", "bfloat16 by vfmadd231ps of widened weights, int8 by vpdpbusd"),
    ("avx2", "int8 by vpmaddubsw"),
    ("amxemulated", "bfloat16 by tdpbf16ps, int8 by tdpbusd"),
    ("amxemulated", "bfloat16x3 by three tdpbf16ps"),
    ("amxemulated", "in decoders float32 by vfmadd231ps, int8 by tdpbssd and tdpbusd"),
    ("neonbf16", "float32 by fmla, bfloat16 by bfmmla, int8 by smmla"),
    ("neon", "bfloat16 by fmla of widened weights, int8 by smlal"),
])
def test_info_tells_what_multiplies(monkeypatch, capsys, name, told):
    isa = pytest.importorskip("engine.backends.cython_cpu.isa", reason="the compiled kernels are not built")
    if reason := isa.why_not(name):
        pytest.skip(reason)
    monkeypatch.setenv("ENGINE_ISA", name)
    assert main(["info"]) == 0
    assert told in capsys.readouterr().out


def test_info_tells_why_there_are_no_tiles(monkeypatch, capsys):
    isa = pytest.importorskip("engine.backends.cython_cpu.isa", reason="the compiled kernels are not built")
    if isa.why_not("baseline"):
        pytest.skip("the baseline kernels are not built")
    monkeypatch.setenv("ENGINE_ISA", "baseline")
    reason = "Linux does not let this process use amx: the signal stack of a thread is smaller than 12 KB"
    monkeypatch.setattr(isa, "INSTRUCTION_SETS", ("amx", "baseline"))
    monkeypatch.setattr(isa, "why_not", lambda name: reason if name == "amx" else None)
    assert main(["info"]) == 0
    assert reason in capsys.readouterr().out


def test_info_tells_what_multiplies_in_numba(monkeypatch, capsys):
    """The instructions are those of the table, and where the CPU could have tiles, the reason against them is told."""
    pytest.importorskip("engine.backends.numba_cpu.target", reason="needs numba: pip install '.[numba]'")
    from engine.backends.numba_cpu import compiled, table

    monkeypatch.setattr("engine.backends.cpu.native.native.ARCHITECTURE", "x86_64")
    monkeypatch.setattr(compiled, "why_not", lambda name: f"Linux does not let this process use {name}")
    for beside, told_of in ((compiled.chosen(), "which are compiled ahead of time"), (None, "no q8_0, int4, q4_0")):
        monkeypatch.setattr(compiled, "chosen", lambda beside=beside: beside)
        assert main(["info"]) == 0
        told = capsys.readouterr().out
        instructions = table.table().instructions()
        assert ", ".join(f"{name} by {instruction}" for name, instruction in instructions.items()) in told
        assert beside is None or told_of in told
        assert ("Linux does not let this process use amx" in told) == (beside != "amx")


def test_info_tells_which_products_of_arm_are_missing(monkeypatch, capsys):
    isa = pytest.importorskip("engine.backends.cython_cpu.isa", reason="the compiled kernels are not built")
    if isa.why_not("baseline"):
        pytest.skip("the baseline kernels are not built")
    monkeypatch.setenv("ENGINE_ISA", "baseline")
    monkeypatch.setattr(isa, "INSTRUCTION_SETS", (*isa.OF_ARCHITECTURE["aarch64"], "baseline"))
    monkeypatch.setattr(isa, "why_not", lambda name: None if name == "baseline" else f"this CPU lacks {name}.")
    assert main(["info"]) == 0
    told = capsys.readouterr().out
    assert told.index("lacks neonbf16.") < told.index("lacks neondot.")
    assert "lacks neon." not in told    # another set is slower, but no set is refused for products that it has


def test_info_of_a_model(model, capsys):
    assert main(["info", model]) == 0
    out = capsys.readouterr().out
    for words in ("2, width 12, 3 heads of 4", "30 words, 16 positions", "up to 16 tokens, pooling mean", "prompts",
                  "0.0 million, 0.0 MB in memory", "precision          float32\n"):
        assert words in out


def test_info_of_a_model_without_text(tmp_path, capsys):
    save_encoder(random_model(), tmp_path / "model.npz")
    assert main(["info", str(tmp_path / "model.npz")]) == 0
    assert "no tokenizer" in capsys.readouterr().out


def test_encode(model, tmp_path):
    (tmp_path / "in.txt").write_bytes("\ufeffthe cat\r\n\ndog".encode())
    output = tmp_path / "out.npy"
    output.write_text("an older file")
    options = ["--backend", "reference", "--threads", "1", "--prompt-name", "q", "--normalize"]
    assert main(["encode", model, str(tmp_path / "in.txt"), "-o", str(output), *options]) == 0
    expected = Engine.load(model, backend="reference").encode(
        ["the cat", "", "dog"], prompt="query: ", normalize_embeddings=True
    )
    np.testing.assert_array_equal(np.load(output), expected)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.txt", "model.npz", "out.npy"]


def test_encode_to_text(model, tmp_path, capsysbinary):
    (tmp_path / "in.txt").write_text("the cat\ndog\n")
    expected = Engine.load(model, backend="reference").encode(["the cat", "dog"])
    start = ["encode", model, str(tmp_path / "in.txt"), "--backend", "reference", "-o"]
    for name in ("out.csv", "out.jsonl"):
        assert main([*start, str(tmp_path / name)]) == 0
    read = np.loadtxt(tmp_path / "out.csv", np.float32, delimiter=",")
    np.testing.assert_array_equal(read, expected)
    lines = (tmp_path / "out.jsonl").read_bytes()
    np.testing.assert_array_equal(np.array([json.loads(line) for line in lines.splitlines()], np.float32), expected)
    capsysbinary.readouterr()
    assert main([*start, "-"]) == 0
    assert capsysbinary.readouterr().out == lines
    assert not (tmp_path / "-").exists()


def test_encode_texts_themselves(model, capsys):
    assert main(["encode", "--text", "the cat", "-o", "-", model, "--text", "dog", "--backend", "reference"]) == 0
    found = np.array([json.loads(line) for line in capsys.readouterr().out.splitlines()], np.float32)
    np.testing.assert_array_equal(found, Engine.load(model, backend="reference").encode(["the cat", "dog"]))


def test_a_reader_that_goes_away(model, tmp_path):
    (tmp_path / "in.txt").write_text("the cat\n" * 1000)
    command = f"'{sys.executable}' -m engine encode '{model}' '{tmp_path / 'in.txt'}' --backend reference -o -"
    run = subprocess.run(f"{command} | head -n 1", shell=True, capture_output=True, text=True)
    assert len(json.loads(run.stdout)) == D
    assert run.stderr == ""


def test_encode_standard_input(model, tmp_path, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"the cat\n")))
    assert main(["encode", model, "-o", str(tmp_path / "out.npy"), "--backend", "reference"]) == 0
    assert np.load(tmp_path / "out.npy").shape == (1, D)


def test_encode_in_the_fastest_precision(model, tmp_path, monkeypatch):
    (tmp_path / "in.txt").write_text("the cat\n")
    loaded = []
    monkeypatch.setattr(Engine, "load", lambda path, **options: loaded.append(options) or engine_of(random_model()))
    main(["encode", model, str(tmp_path / "in.txt"), "-o", "-", "--precision", "auto"])
    assert loaded[0]["precision"] == "auto"


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ("5\tthe cat\ta cat\n0\tdog\tmat\n", ["2 scored pairs", "100.000 in float32, 100.000 in int8: +0.000"]),
        ("the cat\n\ndog\n", ["3 lines", "mean 1.00000, min 1.00000"]),
    ],
)
def test_compare(model, tmp_path, monkeypatch, capsys, data, expected):
    (tmp_path / "data.tsv").write_text(data)
    asked = []

    def in_float32(model, *, precision, **options):
        asked.append((model.encoder.precision, precision))
        return engine_of(convert_encoder(load_encoder(path), "float32"), **options)

    path = model
    monkeypatch.setattr("engine.studies.compare.Engine", in_float32)
    options = ["--precision", "int8", "--data", str(tmp_path / "data.tsv"), "--backend", "reference"]
    assert main(["compare", model, *options]) == 0
    assert asked == [("float32", "float32"), ("int8", "int8")]
    out = capsys.readouterr().out
    assert all(words in out for words in expected), out
    assert ("Spearman" in out) == ("\t" in data)


def test_run_as_a_module():
    run = subprocess.run([sys.executable, "-m", "engine", "--version"], check=True, capture_output=True, text=True)
    assert run.stdout == f"encoder-engine {engine.__version__}\n"


@pytest.fixture
def short_bench(monkeypatch):
    """Let `engine bench` measure for a moment, the machine's limits too; tests/backends/test_peak.py has their size."""
    bench = pytest.importorskip("engine.studies.bench", reason="the compiled kernels are not built")
    monkeypatch.setattr(bench, "SECONDS", 0.0)
    monkeypatch.setattr("engine.backends.peak.ROUNDS", 10_000)
    monkeypatch.setattr("engine.backends.peak.BUFFER", 2**16)


@pytest.mark.usefixtures("short_bench")
def test_bench(model, capsys):
    assert main(["bench", model, "--threads", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.split()[0] == "1x16" and "%" in line for line in lines)
    assert not any("1x512" in line for line in lines), "longer than the model allows"


@pytest.mark.usefixtures("short_bench")
@pytest.mark.parametrize("make", [language_model, translator])
def test_bench_of_a_model_that_generates(make, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("engine.studies.bench_generation.PROMPTS", (20, 1024))
    save(make(), tmp_path / "model.npz")
    assert main(["bench", str(tmp_path / "model.npz"), "--threads", "1", "--precision", "int8"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [line[:4] for line in lines[2:6]] == [["1", "step", "after", "32"], ["8", "step", "after", "32"],
                                                 ["32", "step", "after", "32"], ["1", "prompt", "of", "20"]]
    assert all("%" in line[-1] for line in lines[2:6])


def test_bench_of_two_tables_of_positions(monkeypatch):
    bench = pytest.importorskip("engine.studies.bench_generation", reason="the compiled kernels are not built")
    measured = []
    monkeypatch.setattr(bench, "measure", lambda model: measured.append(model) or [])
    for options, longest in (([], 32), (["--long-context"], 64)):
        assert main(["bench", str(DECODERS / "phi3_long"), "--backend", "reference", *options]) == 0
        assert measured[-1].config.longest_sequence == longest


def test_info_prints_each_kind_of_layer_once(model, capsys):
    assert main(["info", str(model)]) == 0
    out = capsys.readouterr().out
    assert re.search(r"layers 0-1 +q, k, v = query x, key x, value x; c = attend\(q, k, v\); y = x \+ output c;", out)
    assert out.count("attend(") == 1


def test_an_interrupt_is_one_line(model, tmp_path):
    """Ctrl-C in the middle of `encode`: no traceback, no output file, and the exit status that shells expect."""
    text, out = tmp_path / "texts", tmp_path / "out.npy"
    text.write_text("the cat sat on a mat\n" * 200_000)
    code = ("import os, signal, sys, threading; from engine import Engine; from engine.cli.main import main\n"
            "signal.signal(signal.SIGINT, signal.default_int_handler)\n"    # a shell's background job ignores it
            "encode = Engine.encode\n"
            "def interrupted(*args, **options):\n"
            "    threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()\n"
            "    return encode(*args, **options)\n"
            "Engine.encode = interrupted\n"
            "sys.exit(main(sys.argv[1:]))\n")
    command = [sys.executable, "-c", code, "encode", str(model), str(text), "-o", str(out), "--backend", "reference"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (130, "engine encode: interrupted\n")
    assert not out.exists()


def test_too_little_memory_is_one_line(model, monkeypatch, capsys):
    for error, text in ((MemoryError(), "out of memory"), (MemoryError("no 5 bytes"), "out of memory: no 5 bytes")):
        def fail(*_, error=error, **__):
            raise error

        monkeypatch.setattr("engine.cli.bench.load", fail)
        assert main(["bench", str(model)]) == 1
        assert capsys.readouterr().err == f"engine bench: {text}\n"
