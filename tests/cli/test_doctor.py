"""Test `engine doctor`: what it says of this machine, and that a broken installation does not silence it."""

import json

import pytest

import engine
from engine.base.cpus import thread_limits
from engine.cli import doctor
from engine.cli.main import main


def told(capsys):
    assert main(["doctor", "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_doctor_tells_one_story_as_a_table_and_as_json(monkeypatch, capsys):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    facts = told(capsys)
    assert facts["encoder-engine"][0].startswith(engine.__version__)
    assert facts["threads"] == ["1", *(f"{limit.cpus} by {limit.source}" for limit in thread_limits())]
    assert facts["threads"][-1] == "1 by OMP_NUM_THREADS"
    assert "OMP_NUM_THREADS=1" in facts["environment"]
    assert {"backend cython", "backend numba", "backend cuda", "backend reference", "extra text"} <= facts.keys()
    assert facts["backend reference"][0].startswith("float32 in NumPy")
    assert main(["doctor"]) == 0
    table = capsys.readouterr().out
    assert all(line in table for lines in facts.values() for line in lines)


def test_a_number_of_threads_that_is_none_is_named(monkeypatch, capsys):
    monkeypatch.setenv("OMP_NUM_THREADS", "many")
    assert told(capsys)["threads"][-1] == "OMP_NUM_THREADS=many is ignored: it is no number above 0"


def test_bytes_that_are_no_utf_8_do_not_silence_it(monkeypatch, capsysbinary):
    monkeypatch.setenv("HF_HOME", "/a\udcff")
    assert main(["doctor"]) == 0
    assert b"HF_HOME=/a\xff" in capsysbinary.readouterr().out
    assert main(["info", "/a\udcff"]) == 1
    assert rb"/a\udcff" in capsysbinary.readouterr().err


def test_doctor_says_why_an_instruction_set_is_in_use(monkeypatch, capsys):
    isa = pytest.importorskip("engine.backends.cython_cpu.isa", reason="the compiled kernels are not built")
    monkeypatch.delenv("ENGINE_ISA", raising=False)
    assert told(capsys)["instruction set"][0] == f"{isa.available()[0]}, the fastest that runs here"
    monkeypatch.setenv("ENGINE_ISA", isa.available()[-1])
    assert told(capsys)["instruction set"][0] == f"{isa.available()[-1]}, because ENGINE_ISA names it"
    monkeypatch.setenv("ENGINE_ISA", "z80")
    facts = told(capsys)
    assert facts["instruction set"][0].startswith("none: ENGINE_ISA=z80, but no instruction set is called 'z80'")
    assert facts["backend cython"][0].startswith("cannot run:")


def test_without_an_installed_package_the_rest_is_told(monkeypatch, capsys):
    monkeypatch.setattr(doctor, "DISTRIBUTION", "no-such-distribution")
    facts = told(capsys)
    assert facts["extras"][0].startswith("unknown: no package")
    assert facts["threads"]


@pytest.mark.parametrize(("variables", "folder"), [
    ({}, "/home/anna/.cache/huggingface/hub"),
    ({"XDG_CACHE_HOME": "/x"}, "/x/huggingface/hub"),
    ({"HF_HOME": "/h", "XDG_CACHE_HOME": "/x"}, "/h/hub"),
    ({"HF_HUB_CACHE": "~/models", "HF_HOME": "/h"}, "/home/anna/models"),
])
def test_the_folder_of_models_is_the_one_of_huggingface_hub(monkeypatch, variables, folder):
    for name in ("HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"HOME": "/home/anna", **variables}.items():
        monkeypatch.setenv(name, value)
    assert str(doctor.model_cache()) == folder


def test_the_c_library_and_the_cpu_are_read_from_what_linux_has(monkeypatch, tmp_path):
    def no_glibc(name):
        raise ValueError(name)

    monkeypatch.setattr("os.confstr", no_glibc)
    for mapped in ("/lib/ld-musl-x86_64.so.1", "/usr/lib/aarch64-linux-musl/libc.so"):
        (tmp_path / "maps").write_text(f"7f00-7f01 r-xp 0 0:1 5 {mapped}\n")
        assert doctor.c_library(str(tmp_path / "maps")) == "musl"
    assert doctor.c_library(str(tmp_path / "nowhere")) == "an unknown C library"
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n\nCPU part\t: 0x1\n")
    assert doctor.cpu_model(str(tmp_path / "cpuinfo")) == "implementer 0x41, part 0xd0c"
    assert doctor.cpu_model(str(tmp_path / "nowhere")) == "unknown"
