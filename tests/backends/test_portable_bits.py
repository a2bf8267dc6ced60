"""bits="portable": what it refuses, what objects say of it, and the same bits in other processes.

The processes differ in kernels, threads and backends, and in the code that NumPy, its matrix library and libm choose.
`make same-bits` compares every result of `tests.tools.same_bits`, and 2,000 random models.
"""

import json
import pickle

import numpy as np
import pytest

import engine
from engine import Engine, Generator, InputError, Transcriber, UnsupportedError
from engine.backends import numba_cuda
from engine.backends.cpu.native_ops import NativeOps
from engine.cli.main import main
from engine.model.bits import DEFINITION

from ..tools.golden_generating import GOLDEN as GENERATING
from ..tools.golden_models import GOLDEN
from ..tools.speech import sounds, timed

isa = pytest.importorskip("engine.backends.cython_cpu.isa", reason="the compiled kernels are not built")
same_bits = pytest.importorskip("tests.tools.same_bits")

if not isa.chosen().fused:
    pytest.skip("this CPU has no fused multiply-adds", allow_module_level=True)

X = np.ones((2, 3), np.float32)


@pytest.mark.parametrize("bits", ["Portable", "", None, 1, ["portable"]])
def test_other_words_are_refused(bits):
    for ask in (lambda: Engine.load(GOLDEN / "bert", bits=bits), lambda: Generator.load(GENERATING / "gpt2", bits=bits),
                lambda: engine.ops.linear(X, X, bits=bits)):
        with pytest.raises(InputError, match="bits must be 'fastest' or 'portable', not"):
            ask()


def test_backends_without_portable_bits_are_refused():
    for ask in (lambda: Engine.load(GOLDEN / "bert", backend="reference", bits="portable"),
                lambda: Generator.load(GENERATING / "gpt2", backend="reference", bits="portable"),
                lambda: engine.ops.linear(X, X, backend="reference", bits="portable")):
        with pytest.raises(UnsupportedError, match=r'the reference backend .* use backend="cython" .* bits="fastest"'):
            ask()
    assert numba_cuda.BACKEND.no_portable_bits().startswith("the cuda backend adds in the order of its GPU")


def test_what_has_no_portable_bits_is_refused(monkeypatch):
    with pytest.raises(UnsupportedError, match="'bfloat16x3' needs AMX's tiles, so it has no portable bits"):
        Engine.load(GOLDEN / "bert", precision="bfloat16x3", bits="portable", backend="cython")
    monkeypatch.setenv("ENGINE_ISA", "baseline")
    if isa.why_not("baseline") or isa.chosen().fused:
        return
    with pytest.raises(UnsupportedError, match="the baseline kernels, which run here, have no fused multiply-adds"):
        Engine.load(GOLDEN / "bert", bits="portable")


def test_the_old_name_of_the_baseline_set(monkeypatch):
    monkeypatch.setenv("ENGINE_ISA", "portable")
    with pytest.raises(engine.EngineError, match="'portable' any more, and its new name is 'baseline'"):
        Engine.load(GOLDEN / "bert")


def test_objects_say_which_bits_they_have(capsys):
    portable = Engine.load(GOLDEN / "bert", bits="portable", threads=1)
    assert portable.bits == pickle.loads(pickle.dumps(portable)).bits == "portable"
    assert "portable bits, 1 thread" in repr(portable)
    assert "bits" not in repr(Engine.load(GOLDEN / "bert", threads=1))
    assert Generator.load(GENERATING / "gpt2", bits="portable").bits == "portable"
    auto = Engine.load(GOLDEN / "bert", precision="auto", bits="portable")
    assert auto.bits == "portable"
    assert main(["info"]) == 0
    assert "portable bits" in capsys.readouterr().out


def test_single_operations_have_the_bits_of_every_set():
    x, w = (np.random.default_rng(i).standard_normal((40, 1500), np.float32) for i in range(2))
    found = set()
    for name in isa.available():
        if isa.load(name).fused:
            found.add(NativeOps(isa.load(name), 2, portable=True).linear(x, w, None, "gelu", None).tobytes())
    assert len(found) == 1


@pytest.mark.parametrize("precision", ["float32", "int8"])
@pytest.mark.parametrize("name", ["llama", "marian"])
def test_a_stream_goes_on_by_its_ids_with_the_kernels_of_another_set(name, precision, monkeypatch):
    """Each set computes three tokens in turn, and gives a continuation the scores and samples of the others, too."""
    generators = []
    for kernels in isa.available():
        if isa.load(kernels).fused:
            monkeypatch.setenv("ENGINE_ISA", kernels)
            generators.append(Generator.load(GENERATING / name, precision=precision, bits="portable", threads=1))
    settings = {"eos_token_id": None, "forced_eos_token_id": None, "repetition_penalty": 1.4, "no_repeat_ngram_size": 1}

    def inputs(generator, ids):
        if generator.encoder_config is None:
            return [51, 7, *ids], None
        return [39, 8, 2], [generator.generation.decoder_start_token_id, *ids]

    def streamed(generator, ids, count):
        source, prompt = inputs(generator, ids)
        return [token.id for token in generator.stream(source, prompt=prompt, max_new_tokens=count, **settings)]

    def continued(generator, ids, **search):
        source, prompt = inputs(generator, ids)
        return generator.generate([source], prompts=prompt and [prompt], max_new_tokens=5, **settings, **search)

    whole = streamed(generators[0], [], 12)
    ids: list[int] = []
    for i in range(4):
        ids += streamed(generators[i % len(generators)], ids, 3)
    assert ids == whole
    assert len({*ids}) == 12
    for search in ({}, {"num_beams": 3}, {"do_sample": True, "top_k": 0, "seed": 5}):
        first, *others = [continued(generator, ids[:5], **search) for generator in generators]
        assert [other == first for other in others] == [True] * len(others)


def test_recordings_are_heard_without_the_transforms_of_numpy(monkeypatch):
    """Their bits differ between NumPy 1 and 2."""
    pytest.importorskip("tokenizers")
    transcriber = Transcriber(timed(several=True), bits="portable", threads=1)
    monkeypatch.setattr(np.fft, "rfft", None)
    transcriber.transcribe(sounds(1))
    transcriber.transcribe(sounds(1), timestamps=True)
    transcriber.detect_language(sounds(1))


def test_other_processes_give_the_same_bits():
    """A share of the results in each, and all tables and operations; other kernels run on 1 to 4 threads."""
    groups = ["encoders", "decoders", "speech", "heads", "tables", "operations"]
    assert same_bits.differences(groups, share=(1, 127)) == []


def test_the_record_has_the_version_of_the_definition_and_every_result():
    record = json.loads(same_bits.FILE.read_text())
    assert record["version"] == DEFINITION
    assert same_bits.recorded_names() == record["digests"].keys()
