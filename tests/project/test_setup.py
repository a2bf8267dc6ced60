"""setup.py and the Makefile: which kernels each kind of build compiles."""

import os
import platform
import re
import runpy
import shutil
import subprocess
import sysconfig

import pytest

from engine.backends.cpu.native import layout

from ..tools.paths import ROOT

REPOSITORY = ROOT

AVX2 = {"fpu", "avx2", "fma"}
AVX512 = AVX2 | {"avx512f", "avx512bw", "avx512dq", "avx512vl"}
TILES = AVX512 | {"avx512_vnni", "avx512_bf16", "amx_tile", "amx_bf16", "amx_int8"}


@pytest.fixture(scope="module")
def build():
    """The names that setup.py defines, those of x86-64 on every machine."""
    pytest.importorskip("setuptools")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("platform.machine", lambda: "x86_64")
        return runpy.run_path(str(REPOSITORY / "setup.py"))


@pytest.fixture(scope="module", params=["machine", "cross"])
def build_for_arm(request):
    """The names that setup.py defines on AArch64, or where a cross compiler compiles for it."""
    pytest.importorskip("setuptools")
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "cross":
            patch.setattr("platform.machine", lambda: "x86_64")
            patch.setenv("_PYTHON_HOST_PLATFORM", "linux-aarch64")
        else:
            patch.setattr("platform.machine", lambda: "aarch64")
        return runpy.run_path(str(REPOSITORY / "setup.py"))


def test_a_module_that_is_translated_to_the_same_code_keeps_its_time(build, tmp_path):
    """`pip install .` brings a newer Cython each time, and `make` compiles what is newer than its library."""
    head = b"/* BEGIN: Cython Metadata\n%s\nEND: Cython Metadata */\n%s"
    written = {"same": (b"-w", b"a", b"-O1", b"a"), "changed": (b"-w", b"a", b"-w", b"b"),
               "plain": (b"", b"a", b"", b"a")}
    files = [tmp_path / f"{name}.c" for name in (*written, "new")]
    for file, (flags, code, *_) in zip(files, written.values(), strict=False):
        file.write_bytes(head % (flags, code))
        os.utime(file, (5, 5))
    with build["keeping_what_is_equal"](files):
        for file, (*_, flags, code) in zip(files, written.values(), strict=False):
            file.write_bytes(head % (flags, code))
        files[-1].write_bytes(b"new")
    assert [file.stat().st_mtime == 5 for file in files] == [True, False, True, False]
    assert files[1].read_bytes().endswith(b"b")


def test_the_makefile_knows_every_compiled_folder():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for folder in {file.parent.relative_to(ROOT).as_posix() for file in (ROOT / "engine").rglob("*.pyx")}:
        name = re.search(rf"^(\w+) := {folder}$", makefile, re.MULTILINE)[1]
        for use in (f"$({name})/*.pyx", f"$({name})/*.so"):
            assert use in makefile


def test_the_readme_says_how_to_compile_for_one_cpu(build):
    """`best` is one set of kernels; `native` are all that the CPU can run."""
    assert "ENGINE_BUILD_ISA=best pip install ." in (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(build["instruction_sets"]("best", TILES | {"avx_vnni"})) == 1


@pytest.mark.parametrize(("features", "names"), [
    ({"fp", "asimd"}, ["baseline", "neon"]),
    ({"fp", "asimd", "atomics"}, ["baseline", "neon"]),
    ({"fp", "asimd", "atomics", "asimddp", "i8mm"}, ["baseline", "neon", "neondot"]),
    ({"fp", "asimd", "atomics", "asimddp", "bf16"}, ["baseline", "neon", "neondot"]),
    ({"fp", "asimd", "atomics", "asimddp", "bf16", "i8mm"}, ["baseline", "neon", "neondot", "neonbf16"]),
    ({"fp", "asimd", "asimddp", "bf16", "i8mm"}, ["baseline", "neon"]),
], ids=["v8.0", "v8.1", "v8.2", "without i8mm", "v8.6", "without atomics"])
def test_native_is_what_an_arm_cpu_can_run(build_for_arm, features, names):
    assert build_for_arm["instruction_sets"]("native", features) == names
    assert build_for_arm["instruction_sets"]("best", features) == names[-1:]
    assert build_for_arm["instruction_sets"]("all", features) == ["baseline", "neon", "neondot", "neonbf16"]


def test_the_features_of_an_arm_cpu_are_read_only_on_that_machine(build_for_arm, tmp_path):
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nFeatures\t: fp asimd atomics\n\nFeatures\t: other\n")
    expected = None if build_for_arm["COMPILED_FOR"] else {"fp", "asimd", "atomics"}
    assert build_for_arm["cpu_features"](tmp_path / "cpuinfo") == expected


@pytest.mark.parametrize(("features", "names"), [
    ({"fpu"}, ["baseline"]),
    (AVX2, ["baseline", "avx2"]),
    (AVX2 | {"avx_vnni"}, ["baseline", "avx2", "avxvnni"]),
    (AVX512, ["baseline", "avx2", "avx512"]),
    (AVX512 | {"avx512_bf16"}, ["baseline", "avx2", "avx512"]),
    (AVX512 | {"avx512_vnni", "avx512_bf16"}, ["baseline", "avx2", "avx512", "avx512vnni", "avx512bf16"]),
    (TILES, ["baseline", "avx2", "avx512", "avx512vnni", "avx512bf16", "amx"]),
    (TILES - {"amx_int8"}, ["baseline", "avx2", "avx512", "avx512vnni", "avx512bf16"]),
], ids=lambda value: value[-1] if isinstance(value, list) else "")
def test_native_is_what_the_cpu_can_run(build, features, names):
    assert build["instruction_sets"]("native", features) == names
    assert build["instruction_sets"]("best", features | {"AuthenticAMD"}) == names[-1:]


def test_bfloat16_products_are_best_only_on_amd(build):
    features = AVX512 | {"avx512_vnni", "avx512_bf16"}
    assert build["instruction_sets"]("best", features | {"AuthenticAMD"}) == ["avx512bf16"]
    assert build["instruction_sets"]("best", features | {"GenuineIntel"}) == ["avx512vnni"]
    assert build["instruction_sets"]("best", TILES | {"GenuineIntel"}) == ["amx"]


def test_all_does_not_depend_on_the_cpu(build):
    expected = ["baseline", "avx2", "avxvnni", "avx512", "avx512vnni", "avx512bf16", "amx"]
    for features in (None, {"fpu"}, AVX512):
        assert build["instruction_sets"]("all", features) == expected


def test_emulated_is_what_the_cpu_cannot_run(build):
    choose = build["instruction_sets"]
    assert choose("emulated", None) == choose("emulated", AVX2) == ["wide", "amxemulated"]
    assert choose("emulated", AVX512) == choose("emulated", TILES) == ["amxemulated"]
    assert choose("native,emulated", AVX512)[-2:] == ["avx512", "amxemulated"]


def test_an_unknown_cpu_gets_all(build, tmp_path):
    (tmp_path / "cpuinfo").write_text("processor : 0\nFeatures : fp asimd\n")
    assert build["cpu_features"](tmp_path / "cpuinfo") is None
    assert build["cpu_features"](tmp_path / "missing") is None
    every = build["instruction_sets"]("all", None)
    assert build["instruction_sets"]("native", None) == every
    assert build["instruction_sets"]("best", None) == every


def test_features_are_the_words_of_the_first_flags_line(build, tmp_path):
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nflags\t\t: fpu avx2 fma\nvmx flags\t: vnmi\n\nflags\t: other\n")
    assert build["cpu_features"](tmp_path / "cpuinfo") == AVX2
    (tmp_path / "cpuinfo").write_text("vendor_id\t: GenuineIntel\nflags\t\t: fpu avx2 fma\n\nflags\t: other\n")
    assert build["cpu_features"](tmp_path / "cpuinfo") == AVX2 | {"GenuineIntel"}


def test_words_add_up_and_unknown_ones_are_refused(build):
    choose = build["instruction_sets"]
    assert choose("wide,native", {"fpu"}) == ["baseline", "wide"]
    assert choose("best,baseline,wide", AVX2) == ["baseline", "avx2", "wide"]
    assert choose("amxemulated,wide,baseline", AVX2) == ["baseline", "wide", "amxemulated"]
    for wrong in ("avx9", "avx2,", "none,avx2", "native baseline"):
        with pytest.raises(SystemExit, match="ENGINE_BUILD_ISA"):
            choose(wrong, AVX2)


def test_setup_and_the_engine_name_the_same_instruction_sets(build, build_for_arm):
    isa = pytest.importorskip("engine.backends.cython_cpu.isa", reason="the compiled kernels are not built")
    for architecture, built_by in (("x86_64", build), ("aarch64", build_for_arm)):
        known = [*isa.OF_ARCHITECTURE[architecture], "baseline", *isa.FOR_TESTS]
        assert [*reversed(built_by["INSTRUCTION_SETS"]), *built_by["FOR_TESTS"]] == known
        for name in known:
            assert (REPOSITORY / build["SOURCES"] / f"kernels_{name}.pyx").exists()


def test_the_makefile_reads_the_build_tools_from_pyproject():
    """It does so with sed, which needs them on one line."""
    pyproject = (REPOSITORY / "pyproject.toml").read_text(encoding="utf-8")
    assert re.search(r'^requires = \["setuptools[^"]*", "Cython[^"]*"\]$', pyproject, re.MULTILINE)


@pytest.fixture
def old_compiler(tmp_path, monkeypatch):
    """A compiler that knows no AMX, as gcc 10 and clang 10."""
    compiler = tmp_path / "cc"
    compiler.write_text('#!/bin/sh\ncase "$*" in *amx*) exit 1;; esac\n')
    compiler.chmod(0o755)
    monkeypatch.setenv("CC", f"{compiler} -pipe")


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_each_instruction_set_compiles(machine, monkeypatch, tmp_path):
    # Elsewhere a machine compiles the sets of its own CPU alone, and a fault of the others would stay unseen.
    compiler = shutil.which("gcc" if platform.machine() == machine else f"{machine}-linux-gnu-gcc")
    kernels = REPOSITORY / "engine/backends/cython_cpu"
    if compiler is None or not (kernels / "kernels_amxemulated.c").exists():
        pytest.skip(f"there is no compiler for {machine}, or Cython has not translated the kernels here")
    monkeypatch.setattr("platform.machine", lambda: machine)
    monkeypatch.chdir(REPOSITORY)
    build = runpy.run_path("setup.py")
    build["write_table_name"](tmp_path)
    for name, flags in build["INSTRUCTION_SETS"].items():
        # Cython translates the kernels of all sets to the same C, but for those of AMX, which has tiles.
        source = kernels / f"kernels_{'amxemulated' if name == 'amx' else 'baseline'}.c"
        inline = "-DCYTHON_INLINE=inline __attribute__((always_inline))"
        ran = subprocess.run([compiler, "-fsyntax-only", "-w", *flags, inline, f"-I{sysconfig.get_path('include')}",
                              f"-I{kernels}", f"-I{tmp_path}", source], capture_output=True, text=True)
        known = "unrecognized command-line option" not in ran.stderr and "invalid feature modifier" not in ran.stderr
        assert ran.returncode == 0 or not known, f"{name}: {ran.stderr[:2000]}"


def test_the_name_of_the_kernel_table_is_written_where_it_is_not_there(build, monkeypatch, tmp_path):
    """A header that is right keeps its time, so that nothing is compiled again."""
    monkeypatch.chdir(REPOSITORY)
    header = build["write_table_name"](tmp_path / "new")
    assert header.read_text() == f'#define ENGINE_TABLE "{layout.TABLE_NAME.decode()}"\n'
    os.utime(header, ns=(1, 1))
    assert build["write_table_name"](tmp_path / "new").stat().st_mtime_ns == 1
    header.write_text("#define ENGINE_TABLE \"another\"\n")
    assert build["write_table_name"](tmp_path / "new").read_text().endswith(f'{layout.TABLE_NAME.decode()}"\n')


@pytest.mark.usefixtures("old_compiler")
def test_an_old_compiler_leaves_out_what_it_does_not_know(build, capsys):
    assert build["without_unknown"](["baseline", "avx2", "amx"], "all") == ["baseline", "avx2"]
    assert "does not know their instructions: amx" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="instructions of amx; take a newer one"):
        build["without_unknown"](["avx2", "amx"], "avx2,amx")


def test_without_a_compiler_nothing_is_left_out(build, monkeypatch):
    monkeypatch.setenv("CC", "/nowhere/gcc")
    assert build["without_unknown"](["baseline", "amx"], "all") == ["baseline", "amx"]


@pytest.mark.parametrize("system", ["darwin", "win32", "cygwin"])
def test_other_systems_are_refused_in_a_sentence(build, system):
    with pytest.raises(SystemExit, match=rf"^encoder-engine runs on Linux only, and this is {system}"):
        build["refuse_other_systems"](system)
    build["refuse_other_systems"]("linux")
    build["refuse_other_systems"]("linux-aarch64")
