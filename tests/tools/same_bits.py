"""Digests of results with portable bits, which every process must print alike, whatever its kernels and libraries are.

    python -m tests.tools.same_bits GROUP ... [--backend NAME] [--threads N] [--share I/N] [--models N]
    python -m tests.tools.same_bits --compare GROUP ... [--python PATH ...]
    python -m tests.tools.same_bits --against FILE GROUP ...

Each line is the name of a result and the digest of its bits. The groups are the keys of `GROUPS`; --share takes every
N-th result of each group, from the I-th one on, and all of the groups in `WHOLE`. `differences` runs other processes,
each with another share, and compares all with the record, golden/portable_bits.json, which --record writes anew; raise
`engine.model.bits.DEFINITION` then. Random and real models are not on record, and compared with those of this process.
--python names other interpreters that run the tree as it is built here, for example with other versions of NumPy.
--against compares this process alone with the record, or with what another one printed with --json: for emulators, in
which processes are slow.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from engine.model.bits import DEFINITION

from .digests import hashed
from .libraries import Choice, computed, other_libraries
from .paths import DECODERS, ENCODERS, GOLDEN, ROOT
from .smollm2 import FOLDER as SMOLLM2
from .whisper import FOLDER as WHISPER
from .whisper import SPEECH

FILE = GOLDEN / "portable_bits.json"
NOT_RECORDED = ("random", "real")
WHOLE = ("operations", "tables", *NOT_RECORDED)
"""The groups of which every process takes all: few results, no two of which see the same, or none on record."""
PRECISIONS = ("float32", "bfloat16", "int8", "q8_0", "int4")
TEXTS = ("Anna lives in Berlin and works for Bilal.", "The cat sat on a mat; it was very good!", "lovely", "42")
SEARCHES: Mapping[str, Mapping[str, Any]] = {
    "greedy": {}, "beams": {"num_beams": 3, "num_return_sequences": 2},
    "samples": {"do_sample": True, "top_k": 0, "temperature": 1.3, "num_return_sequences": 2, "seed": 3},
    "filters": {"do_sample": True, "top_p": 0.9, "min_p": 0.01, "top_k": 7, "seed": 4},
    "penalties": {"repetition_penalty": 1.3, "num_beams": 2, "renormalize_logits": True},
}

Result = tuple[str, Callable[[], Any]]


def digest(value: Any) -> str:
    """Return a short digest of arrays and of what holds them, which tells every bit."""
    sha = hashlib.sha256()

    def add(value: Any) -> None:
        if isinstance(value, np.ndarray):
            sha.update(f"{value.dtype} {value.shape}".encode() + np.ascontiguousarray(value).tobytes())
        elif isinstance(value, Mapping):
            for name in sorted(value):
                add(name)
                add(value[name])
        elif isinstance(value, (list, tuple)):
            sha.update(f"{len(value)}".encode())
            for one in value:
                add(one)
        else:
            sha.update(repr(value).encode())

    add(value)
    return sha.hexdigest()[:16]


def _encoders(options: dict[str, Any], models: int) -> Iterator[Result]:
    """Every golden encoder in every precision: the vectors of its sequences, images or sounds."""
    from engine import Engine

    def vectors(folder: Path, precision: str) -> Any:
        engine = Engine.load(folder, precision=precision, **options)
        for name in ("inputs", "expected", "tasks"):
            if (folder / f"{name}.npz").exists():
                with np.load(folder / f"{name}.npz") as file:
                    arrays = dict(file)
                break
        if name == "inputs":
            given = [arrays[f"given_{i}"] for i in range(len(arrays) // 2)]
            return engine.forward(**{engine._stem.given: given})
        if "input_ids" in arrays:
            return engine.forward(arrays["input_ids"], arrays["attention_mask"])
        return engine.forward([arrays[key].astype(int) for key in sorted(arrays) if key.startswith("ids_")])

    for folder in sorted(path.parent for path in ENCODERS.glob("*/config.json")):
        for precision in PRECISIONS:
            yield f"{folder.name} {precision}", partial(vectors, folder, precision)


def _decoders(options: dict[str, Any], models: int) -> Iterator[Result]:
    """Every golden model that generates, in every precision and search: ids and scores; and log probabilities."""
    from engine import Generator, Reranker, load_model

    from .golden_generating import LONG_CONTEXT

    def generated(folder: Path, precision: str) -> Any:
        model = load_model(folder, kind="generate", long_context=folder.name in LONG_CONTEXT)
        with np.load(folder / "expected.npz") as file:
            arrays = dict(file)
        generator = Generator(model, precision=precision, **options)
        sources = [arrays[f"source_{i}"].astype(int).tolist() for i in range(4)] if "source_0" in arrays else None
        texts = [arrays[f"ids_{i}"].astype(int).tolist() for i in range(4)]
        inputs = [text[:3] for text in texts] if sources is None else sources
        found = [generator.score(texts) if sources is None else generator.score(sources, texts)]
        for search in SEARCHES.values():
            results = generator.generate(inputs, max_new_tokens=12, forced_eos_token_id=None, **search)
            found.append([[(one.ids, one.score) for one in (row if isinstance(row, list) else [row])]
                          for row in results])
        return found

    def ranked(precision: str) -> Any:
        reranker = Reranker.load(DECODERS / "reranker", precision=precision, **options)
        return reranker.predict([(text, TEXTS[0]) for text in TEXTS], logits=True)

    for precision in PRECISIONS:
        yield f"reranker {precision}", partial(ranked, precision)
    for folder in sorted(path.parent for path in DECODERS.glob("*/expected.npz")):
        if not folder.name.startswith("whisper"):
            for precision in PRECISIONS:
                yield f"{folder.name} {precision}", partial(generated, folder, precision)


def _speech(options: dict[str, Any], models: int) -> Iterator[Result]:
    """Small models of speech: texts, times, scores and languages."""
    from engine import Transcriber

    from .speech import listening, sounds, timed

    def heard(make: Callable[[], Any], precision: str) -> Any:
        transcriber = Transcriber(make(), precision=precision, **options)
        found = transcriber.transcribe(sounds(), timestamps=True, num_beams=2)
        sampled = transcriber.transcribe(sounds(), do_sample=True, seed=1)
        return [[(one.start, one.end, one.text) for one in transcript.segments] for transcript in found], sampled

    for precision in PRECISIONS:
        yield f"listening {precision}", partial(heard, listening, precision)
        yield f"timed {precision}", partial(heard, timed, precision)


def _heads(options: dict[str, Any], models: int) -> Iterator[Result]:
    """Every golden model with a head or with modules, in three precisions: all that its method returns."""
    from engine import Engine

    from .head_models import NAMES, expected_of, folder_of

    def answers(name: str, precision: str) -> Any:
        expected, engine = expected_of(name), Engine.load(folder_of(name), precision=precision, **options)
        pairs = [(text, TEXTS[0]) for text in TEXTS]
        if expected["task"] == "classify":
            return engine.predict(pairs) if expected["pairs"] else engine.classify(list(TEXTS), top_k=None)
        if expected["task"] == "answer":
            return engine.answer(*map(list, zip(*pairs, strict=True)), top_k=3)
        if expected["task"] == "tag":
            return engine.tag(list(TEXTS))
        if expected["task"] == "embed":
            return engine.encode(list(TEXTS))
        mask = "[MASK]" if expected["tokenizer"] == "wordpiece" else "<mask>"
        return engine.fill_mask([f"{text} {mask} house" for text in TEXTS])

    for name in NAMES:
        for precision in PRECISIONS[:3]:
            yield f"{name} {precision}", partial(answers, name, precision)


def _tables(options: dict[str, Any], models: int) -> Iterator[Result]:
    """What no kernel computes: functions, tables, merged weights, sparse vectors, tokens, features."""
    from engine import load_model
    from engine.backends.choice import drawn_of
    from engine.backends.relative import relative_vectors
    from engine.backends.wants import Draw
    from engine.base.functions import cos_sin, exp, log, log1p, log10, power, product, spectrum, tanh
    from engine.families.adapters import merge_adapters
    from engine.heads.sparse import weights_of
    from engine.model.positions import rotary_angles, sinusoids
    from engine.programs import program_of
    from engine.speech.spectrogram import log_mel

    from .speech import sounds

    def functions() -> Any:
        x = np.arange(1, 20001) * np.float32(0.00513)
        return ([function(x) for function in (log, log10, log1p, tanh, cos_sin)], exp(-x), exp(x.astype(np.float64)),
                power(x, 0.37), log(x.astype(np.float64)))

    def positions() -> Any:
        return rotary_angles(np.arange(32768), 10000.0, 64), sinusoids(100, 32)

    def drawn() -> Any:
        logits = 9 * hashed(1, 1000, 500)
        u = (hashed(2, 1000).astype(np.float64) + 1) / 2
        draw = Draw(top_p=0.95, min_p=0.001)
        return np.concatenate([drawn_of(line, draw, [number]) for line, number in zip(logits, u, strict=True)])

    def relative() -> Any:
        model = load_model(ENCODERS / "deberta_v3", kind="encode").encoder
        operations = [op for op in program_of(model.config).operations if getattr(op, "relative", None)]
        return [relative_vectors(op.relative, model.weights) for op in operations]

    def merged() -> Any:
        weights = {"w lora_A": hashed(3, 2, 8, 300), "w lora_B": hashed(4, 2, 200, 8), "w": hashed(5, 200, 300)}
        values = {"lora_adaptations": ["a", "b"], "lora_rank": 8, "lora_alpha": 3.0}
        return merge_adapters(values, weights, "b")

    def sparse() -> Any:
        return [weights_of(30 * hashed(6, 100, 1000), name) for name in ("relu", "log1p_relu")]

    def features() -> Any:
        return [log_mel(samples, channels, portable=True) for samples in sounds() for channels in (80, 128)]

    yield "functions", functions
    yield "spectrum", lambda: spectrum(hashed(32, 400, 60).astype(np.float64))
    yield "mel features", features
    yield "rotary tables", positions
    yield "drawn tokens", drawn
    yield "relative positions", relative
    yield "merged adapter", merged
    yield "product", lambda: product(hashed(30, 300, 700), hashed(31, 200, 700))
    yield "sparse vectors", sparse


def _operations(options: dict[str, Any], models: int) -> Iterator[Result]:
    """What kernels compute for single calls: similarities and the functions of engine.ops."""
    from engine import Engine

    def similarities() -> Any:
        engine = Engine.load(ENCODERS / "bert", **options)
        a, b = hashed(7, 20, engine.config.hidden_size), hashed(8, 30, engine.config.hidden_size)
        texts = [hashed(9 + i, 3 + i, 48) for i in range(5)]
        ops = engine._ops
        return engine.similarity(a, b), ops.column_maxima(texts, ops.columns(hashed(20, 33, 48), None))

    def operations() -> Any:
        from engine import ops

        x, w = hashed(21, 40, 1500), hashed(22, 70, 1500)
        q, k, v = (hashed(23 + i, 2, 3, 90, 24) for i in range(3))
        own = {name: value for name, value in options.items() if name != "threads"}
        return (ops.linear(x, w, activation="gelu", **own), ops.attention(q, k, v, causal=True, **own),
                ops.layer_norm(x, **own), ops.rms_norm(x, **own), ops.softmax(x, **own), ops.silu(x, **own))

    yield "similarities", similarities
    yield "single", operations


def _random(options: dict[str, Any], models: int) -> Iterator[Result]:
    """Random encoders and decoders of any options, each in one precision by turns."""
    from hypothesis import HealthCheck, Phase, given, seed, settings
    from hypothesis import strategies as st

    from engine.backends import get_backend
    from engine.model.run_config import RunConfig

    from . import random_models
    from .batches import make_batch
    from .decoders import make_weights

    found: list[tuple[Any, list[int], int]] = []

    @seed(43)
    @settings(max_examples=models, deadline=None, database=None, phases=[Phase.generate],
              suppress_health_check=list(HealthCheck))
    @given(config=random_models.configs(), lengths=random_models.LENGTHS, number=st.integers(0, 99))
    def collect(config: Any, lengths: list[int], number: int) -> None:
        found.append((config, lengths, number))

    collect()
    backend = get_backend(options["backend"])

    def vectors(i: int) -> Any:
        config, lengths, number = found[i]
        weights = make_weights(config, number)
        run = RunConfig(options["threads"], PRECISIONS[i % len(PRECISIONS)], 2048, bits=options["bits"])
        return backend.prepare(config, weights, run).forward(make_batch(config, lengths, number))

    for i in range(len(found)):
        yield f"random {i}", partial(vectors, i)


def _real(options: dict[str, Any], models: int) -> Iterator[Result]:
    """MiniLM, SmolLM2 and Whisper tiny.en, where they are there."""
    from engine import Engine, Generator, Transcriber

    from .minilm import FOLDER as MINILM

    prompt = "The capital of France is"
    for precision in PRECISIONS:
        if MINILM.exists():
            yield f"minilm {precision}", lambda precision=precision: Engine.load(
                MINILM, precision=precision, **options).encode(list(TEXTS))
        for file in sorted(SMOLLM2.glob("**/*.gguf"))[:1]:
            yield f"smollm2 {precision}", lambda precision=precision, file=file: [
                (one.ids, one.score) for one in Generator.load(file, precision=precision, **options).generate(
                    [prompt], max_new_tokens=8, do_sample=True, num_return_sequences=2, top_k=0)[0]]
    if WHISPER.exists() and SPEECH.exists():
        for precision in ("float32", "int8"):
            yield f"tiny.en {precision}", lambda precision=precision: Transcriber.load(
                WHISPER, precision=precision, **options).transcribe([str(min(SPEECH.glob("*.wav")))])


GROUPS: Mapping[str, Callable[[dict[str, Any], int], Iterator[Result]]] = {
    "encoders": _encoders, "decoders": _decoders, "speech": _speech, "heads": _heads, "tables": _tables,
    "operations": _operations, "random": _random, "real": _real,
}


def group_of(name: str) -> str:
    """Return the group of a result."""
    return name.partition(":")[0]


def results(groups: Sequence[str], backend: str = "cython", threads: int = 1, share: tuple[int, int] = (0, 1),
            models: int = 20, bits: str = "portable") -> dict[str, str]:
    """Return the digest of each result of the groups; share: (i, n) for every n-th of a group from the i-th on."""
    options = {"backend": backend, "threads": threads, "bits": bits}
    return {f"{group}: {name}": digest(compute()) for group in groups
            for i, (name, compute) in enumerate(GROUPS[group](options, models))
            if i % share[1] == share[0] or group in WHOLE}


def recorded_names() -> set[str]:
    """Return the names of all results that the record has to hold."""
    options = {"backend": "cython", "threads": 1, "bits": "portable"}
    return {f"{group}: {name}" for group, found in GROUPS.items() if group not in NOT_RECORDED
            for name, _ in found(options, 0)}


class Elsewhere(NamedTuple):
    """What another process prints."""

    digests: dict[str, str]
    libraries: dict[str, str]
    """What its libraries compute: `tests.tools.libraries.computed`."""
    numpy: str
    """The version of NumPy."""


def elsewhere(arguments: Sequence[str], environment: Mapping[str, str], python: str = sys.executable) -> Elsewhere:
    """Return what another process prints, which has this environment beside that of this process."""
    own = {name: value for name, value in os.environ.items() if name not in ("ENGINE_ISA", "ENGINE_RANDOM_MODELS")}
    own["PYTHONPATH"] = ":".join(sys.path) if python == sys.executable else str(ROOT)
    run = subprocess.run([python, "-Wignore", "-m", "tests.tools.same_bits", "--json", *arguments],
                         capture_output=True, text=True, cwd=ROOT, env=own | dict(environment))
    if run.returncode:
        raise RuntimeError(f"{python}, {dict(environment)}: {run.stderr[-2000:]}")
    return Elsewhere(**json.loads(run.stdout))


class Process(NamedTuple):
    """Another process, which computes with kernels or libraries of its own."""

    title: str
    arguments: tuple[str, ...] = ()
    variables: Mapping[str, str] = {}
    libraries: Choice | None = None
    python: str = sys.executable


def _other_processes() -> list[Process]:
    """Return one for each kind of kernels, which also takes one of the choices of libraries while there are any."""
    from engine.backends import numba_cpu
    from engine.backends.cython_cpu import isa

    able = [name for name in isa.available() if isa.load(name).fused]
    found = [Process(f"{name}, {threads} threads", ("--threads", str(threads)), {"ENGINE_ISA": name})
             for name, threads in zip(able, cycle((2, 3, 4, 1)))]
    if numba_cpu.BACKEND.unavailable() is None and numba_cpu.BACKEND.no_portable_bits() is None:
        found.append(Process("numba, 2 threads", ("--backend", "numba", "--threads", "2")))
    for i, (title, choice) in enumerate(other_libraries().items()):
        if i == len(found):
            found.append(Process("1 thread"))
        found[i] = found[i]._replace(title=f"{found[i].title}, {title}", libraries=choice,
                                     variables={**found[i].variables, **choice.variables})
    return found


def differences(groups: Sequence[str], share: tuple[int, int] = (0, 1), models: int = 20,
                pythons: Sequence[str] = ()) -> list[str]:
    """Return the results that differ from the record, or from those of this process, and where.

    This process and others compute them, each another share: with other kernels, on other threads, most with other
    libraries, too, and with other interpreters. A process whose libraries should choose other code, and do not, counts
    as a difference.
    """
    record = json.loads(FILE.read_text())["digests"]
    here = results(groups, share=share, models=models)
    runs = [*_other_processes(), *(Process(python, python=python) for python in pythons)]
    libraries = computed()
    found = [f"this process: {name}" for name, own in here.items() if record.get(name, own) != own]
    found += [f"not on record: {name}" for name in here if name not in record and group_of(name) not in NOT_RECORDED]
    for number, run in enumerate(runs, 1):
        first = (share[0] + number) % share[1]
        # Tables come from the libraries alone.
        asked = [group for group in groups if group != "tables" or run.libraries or run.python != sys.executable]
        there = elsewhere([*asked, *run.arguments, "--share", f"{first}/{share[1]}", "--models", str(models)],
                          run.variables, run.python)
        differing = [f"{run.title}: {name}" for name, own in there.digests.items()
                     if own != record.get(name, here.get(name))]
        other = [name for name, own in libraries.items() if there.libraries[name] != own]
        print(f"{run.title}: {len(differing)} of {len(there.digests)} results differ, with NumPy {there.numpy}; other "
              f"bits in the libraries: {', '.join(other) or 'none'}", file=sys.stderr, flush=True)
        found += [*differing, *(f"{run.title}: it has the bits of this process in {name}"
                                for name in (run.libraries.changes if run.libraries else ()) if name not in other)]
    return found


def main() -> None:
    """Print the digests of this process, or compare other processes with it."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("groups", nargs="+", choices=GROUPS)
    parser.add_argument("--backend", default="cython")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--share", default="0/1")
    parser.add_argument("--models", type=int, default=20, help="how many random models there are")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--compare", action="store_true", help="compare other kernels, threads and libraries")
    parser.add_argument("--python", action="append", default=[], help="another interpreter to compare")
    parser.add_argument("--against", type=Path, help="compare this process with the digests of a file")
    parser.add_argument("--record", action="store_true", help="write the record of these groups anew")
    args = parser.parse_args()
    first, _, count = args.share.partition("/")
    share = int(first), int(count)
    if args.compare:
        differing = differences(args.groups, share, args.models, args.python)
        raise SystemExit("\n".join(["these results differ:", *differing]) if differing else 0)
    found = results(args.groups, args.backend, args.threads, share, args.models)
    if args.against:
        expected = json.loads(args.against.read_text())["digests"]
        differing = [name for name, own in found.items() if expected.get(name) != own]
        print(f"{len(found) - len(differing)} of {len(found)} results are those of {args.against}")
        raise SystemExit("\n".join(["these results differ:", *differing]) if differing else 0)
    if args.record:
        old = json.loads(FILE.read_text())["digests"] if FILE.exists() else {}
        kept = {name: own for name, own in old.items() if group_of(name) not in args.groups}
        record = {"version": DEFINITION, "digests": dict(sorted((kept | found).items()))}
        FILE.write_text(json.dumps(record, indent=1) + "\n")
        return
    if args.json:
        print(json.dumps(Elsewhere(found, computed(), np.__version__)._asdict()))
        return
    print("\n".join(f"{name} {value}" for name, value in found.items()))


if __name__ == "__main__":
    main()
