"""Test user-written score functions, compiled and called as the attention kernels call them."""

import ctypes
import functools
import gc
import math
import os
import re
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.backends.numba_cpu.compiler.score_mod import _compiled, compile_score_mod
from engine.backends.score_functions import LARGEST_CONSTANT
from engine.base.errors import BackendUnavailable, InputError, UnsupportedError
from engine.ops import attention

from ...tools.children import read_child
from ...tools.threads import begin, together

numba = pytest.importorskip("numba", reason="score_mod is compiled by Numba")

SCORE_MOD = ctypes.CFUNCTYPE(None, ctypes.c_void_p, *[ctypes.c_ssize_t] * 7, ctypes.c_void_p)
SLOPES = np.array([0.5, 0.25, 0.125, 0.0625], np.float32)
B, H = 1, 2
RNG = np.random.default_rng(0)


def alibi(score, b, h, q, kv):
    return score - SLOPES[h] * abs(q - kv)


def call(score_mod, scores, n, query=0, key=0):
    """Apply the compiled function to the first n columns of a copy of the scores [keys, stride]."""
    code = compile_score_mod(score_mod)
    changed = scores.copy()
    SCORE_MOD(code.address)(changed.ctypes.data, scores.shape[1], B, H, query, n, key, len(scores), code.captured)
    return changed


def expected(score_mod, scores, n, query=0, key=0):
    """Apply the function in plain Python, one score at a time."""
    changed = scores.copy()
    for j in range(len(scores)):
        for i in range(n):
            changed[j, i] = score_mod(scores[j, i].item(), B, H, query + i, key + j)
    return changed


def check(score_mod, keys=7, n=19, query=5, key=3):
    """Check that compiled and interpreted results agree to float32's rounding, and that other columns are unchanged."""
    scores = RNG.standard_normal((keys, n + 3)).astype(np.float32)
    got, wanted = call(score_mod, scores, n, query, key), expected(score_mod, scores, n, query, key)
    np.testing.assert_allclose(got, wanted, rtol=3e-7, atol=2e-6)
    np.testing.assert_array_equal(got[:, n:], scores[:, n:])


@given(n=st.integers(1, 70), keys=st.integers(0, 9), query=st.integers(0, 10**6), key=st.integers(0, 10**6))
@settings(deadline=None)
def test_blocks_of_any_shape_and_place(n, keys, query, key):
    check(alibi, keys, n, query, key)


def document_mask(score, b, h, q, kv, doc):
    return score if doc[b, q] == doc[b, kv] else -math.inf


def distance_bias(score, b, h, q, kv, table):
    reach = table.shape[1] // 2
    return score + table[h, min(max(q - kv, -reach), reach) + reach]


def add_entry(score, b, h, q, kv, table):
    return score + table[b, h, q + kv]


@pytest.mark.parametrize("dtype", [np.int8, np.int64, np.uint16, np.float64])
def test_document_mask(dtype):
    check(functools.partial(document_mask, doc=np.sort(RNG.integers(0, 4, (2, 40))).astype(dtype)))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.bool_])
def test_distance_bias(dtype):
    check(functools.partial(distance_bias, table=(RNG.integers(-6, 6, (4, 9)) / 2).astype(dtype)), query=0, key=0)


@pytest.mark.parametrize("table", [
    RNG.standard_normal((2, 3, 100)),
    RNG.standard_normal((100, 3, 2)).T,
    RNG.standard_normal((2, 3, 100))[..., ::-1],
    np.broadcast_to(RNG.standard_normal(100), (2, 3, 100)),
    np.frombuffer(bytes(1) + RNG.standard_normal(600).tobytes(), np.float64, offset=1).reshape(2, 3, 100),
], ids=["plain", "transposed", "reversed", "broadcast", "unaligned"])  # fmt: skip
def test_arrays_of_any_layout(table):
    check(functools.partial(add_entry, table=table))


def test_scalars_given_by_name_or_by_default():
    def scaled(score, b, h, q, kv, factor, shift=2, strict=True):
        return score * factor + shift * strict

    for factor in (3, 0.5, np.float32(0.1), np.int16(7), np.array(2.0), True):
        check(functools.partial(scaled, factor=factor))
    check(functools.partial(scaled, factor=1.5, strict=False, shift=0.25))


@pytest.mark.parametrize("score_mod", [
    lambda score, b, h, q, kv: score,
    lambda score, b, h, q, kv: score if kv <= q else float("-inf"),
    lambda score, b, h, q, kv: q - kv,
    lambda score, b, h, q, kv: 7,
    lambda score, b, h, q, kv: b + 10 * h + score,
    lambda score, b, h, q, kv: 20 * math.tanh(score / 20),
    lambda score, b, h, q, kv: score if (q // 4 + kv // 4) % 2 else score - math.exp(-abs(q - kv)),
    numba.njit(alibi),
])  # fmt: skip
def test_what_a_function_may_be(score_mod):
    check(score_mod)


def test_infinity_and_nan_pass():
    scores = np.array([[np.nan, np.inf, -np.inf, 0.0] * 5], np.float32)
    for score_mod in (lambda s, b, h, q, kv: s + 1.0, lambda s, b, h, q, kv: s if s == s else -np.inf,
                      lambda s, b, h, q, kv: -np.inf if s > 1e30 else s):  # fmt: skip
        np.testing.assert_array_equal(call(score_mod, scores, 20), expected(score_mod, scores, 20))
    dividing = call(lambda s, b, h, q, kv: 1.0 / (q - kv), np.zeros((1, 3), np.float32), 3)
    np.testing.assert_array_equal(dividing, [[np.inf, 1, 0.5]])


def test_helpers_compiled_by_numba():
    @numba.njit
    def distance(q, kv):
        return abs(q - kv)

    check(lambda score, b, h, q, kv: score - 0.5 * distance(q, kv))


def test_alibi_is_made_of_vectors():
    from engine.backends.numba_cpu.compiler.score_walk import compile_walk

    def given_slopes(score, b, h, q, kv, slopes):
        return score - slopes[h] * abs(q - kv)

    for function, arguments in ((alibi, ()), (given_slopes, ((np.dtype(np.float32), 1),))):
        code = compile_walk(function, arguments).inspect_llvm()
        assert re.search(r"fmul <\d+ x double>", code)
        assert re.search(r"fptrunc <\d+ x double>", code)


@pytest.fixture
def compilations():
    """Return a function that counts the functions compiled since its last call."""
    _compiled.cache_clear()
    before = 0

    def count():
        nonlocal before
        now = _compiled.cache_info().misses
        before, new = now, now - before
        return new

    return count


def test_new_values_do_not_compile_anew(compilations):
    scores = np.ones((2, 4), np.float32)

    def shifted(score, b, h, q, kv, shift, table):
        return score + shift + table[q]

    for shift in (1.0, 2.0, -3.5):
        for length in (4, 8):
            table = RNG.standard_normal(length)
            changed = call(functools.partial(shifted, shift=shift, table=table), scores, 4)
            np.testing.assert_allclose(changed, np.tile(1 + shift + table[:4], (2, 1)), rtol=1e-6)
    assert compilations() == 1
    call(functools.partial(shifted, shift=1, table=np.ones(4)), scores, 4)
    assert compilations() == 1, "other types are another compilation"


def test_equal_closures_compile_once(compilations):
    def make(slope, table):
        return lambda score, b, h, q, kv: score + slope * q + table[kv]

    scores = np.zeros((3, 5), np.float32)
    rising, flat = np.arange(3.0), np.ones(3)
    for slope, table, new in [(0.5, rising, 1), (0.5, rising.copy(), 0), (0.25, rising, 1), (0.5, flat, 1),
                              (0.5, flat.astype(np.float32), 1), (0.25, rising.copy(), 0)]:  # fmt: skip
        np.testing.assert_allclose(call(make(slope, table), scores, 5), slope * np.arange(5) + table[:, None])
        assert compilations() == new


def test_unlike_constants_are_told_apart():
    def make(value):
        return lambda score, b, h, q, kv: 1 / (value * score)

    scores = np.ones((1, 1), np.float32)
    assert [call(make(value), scores, 1).item() for value in (0.0, -0.0)] == [np.inf, -np.inf]


def test_what_changes_in_place_is_seen(compilations):
    table = np.zeros(4)

    def score_mod(score, b, h, q, kv):
        return score + table[q] + OFFSETS[kv]

    scores = np.zeros((1, 4), np.float32)
    for _ in range(2):
        table += 1
        OFFSETS[0] += 0.5
        np.testing.assert_array_equal(call(score_mod, scores, 4), np.full((1, 4), table[0] + OFFSETS[0]))
    assert compilations() == 2


OFFSETS = np.zeros(2)


def test_code_in_use_outlives_its_place_among_the_remembered(compilations):
    def make():
        return functools.partial(lambda score, b, h, q, kv, table: score + table[q], table=np.arange(2.0))

    code = compile_score_mod(make())
    _compiled.cache_clear()
    gc.collect()
    scores = np.zeros((1, 2), np.float32)
    SCORE_MOD(code.address)(scores.ctypes.data, 2, 0, 0, 0, 2, 0, 1, code.captured)
    np.testing.assert_array_equal(scores, [[0, 1]])
    assert _compiled.cache_info().maxsize is not None


def test_threads_compile_once_and_agree(compilations):
    def make(slope):
        return lambda score, b, h, q, kv: score - slope * abs(q - kv)

    scores = RNG.standard_normal((64, 16)).astype(np.float32)
    wanted = expected(make(0.25), scores, 16)
    start = threading.Barrier(6)

    def work():
        start.wait()
        return [call(make(0.25), scores, 16) for _ in range(20)]

    for results in together([work] * 6):
        for result in results:
            np.testing.assert_allclose(result, wanted, rtol=3e-7, atol=2e-6)
    assert compilations() == 1


# What cannot be compiled


def plain_helper(score):
    return score


def wrong_type(score, b, h, q, kv):
    scaled = score * 2
    return scaled + "offending"


def wrong_attribute(score, b, h, q, kv):
    return score.offending


def undefined(score, b, h, q, kv):
    return score + offending  # noqa: F821


def not_compiled(score, b, h, q, kv):
    return plain_helper(score)  # offending


def two_results(score, b, h, q, kv):
    if q > kv:
        return "offending"
    return score


def imports(score, b, h, q, kv):
    import offending  # noqa: F401

    return score


def writes(score, b, h, q, kv):
    SLOPES[h] = 1  # offending
    return score


@pytest.mark.parametrize("function", [
    wrong_type, wrong_attribute, undefined, not_compiled, imports, writes, lambda s, b, h, q, kv: s.offending,
])  # fmt: skip
def test_the_offending_line_is_shown(function):
    with pytest.raises(UnsupportedError) as caught:
        compile_score_mod(function)
    message = str(caught.value)
    assert re.search(rf"score_mod {function.__name__} \(.*test_score_mod.py, line \d+: `.*offending", message)
    assert "Numba cannot compile it: " in message
    assert "backend='reference'" in message
    assert len(message) < 500
    assert "\n" not in message


def test_results_of_two_kinds_are_named():
    with pytest.raises(UnsupportedError, match=r"line \d+: `return .*unify return type.*float32"):
        compile_score_mod(two_results)


def test_a_function_without_source_has_a_line_number():
    namespace = {}
    exec("def lost(score, b, h, q, kv):\n    return score.nothing", namespace)
    with pytest.raises(UnsupportedError, match=r"score_mod lost \(<string>, line 2\): .*attribute 'nothing'"):
        compile_score_mod(namespace["lost"])


def test_what_could_print_or_allocate_is_refused():
    def printing(score, b, h, q, kv):
        print(score)
        return score

    def allocating(score, b, h, q, kv):
        return score + np.zeros(q + 1)[q]

    for function in (printing, allocating):
        with pytest.raises(UnsupportedError, match=f"{function.__name__} .*may print or allocate"):
            compile_score_mod(function)


# What fails while it runs

q, k, v = RNG.standard_normal((3, 1, 2, 70, 8), np.float32)
NINE = np.arange(9.0)


def by_query(score, b, h, q, kv, table):
    return score + table[q]


def by_key(score, b, h, q, kv, table):
    return score + table[b, kv]


def by_distance(score, b, h, q, kv, table):
    return score + table[q - kv + 3]


def below(score, b, h, q, kv, table):
    return score + table[kv - q]


def by_constant(score, b, h, q, kv):
    return score + NINE[q // 7]


def raising(score, b, h, q, kv):
    if kv == 69:
        raise ValueError("no")
    return score


def test_a_failure_is_an_error_that_names_its_place(refusals):
    refusals(lambda score_mod: attention(q, k, v, score_mod=score_mod, backend="cython"), [
        functools.partial(by_query, table=np.ones(69)), functools.partial(by_query, table=np.ones(1, np.float32)),
        functools.partial(by_query, table=np.ones(0)), functools.partial(by_key, table=np.ones((1, 64), np.int8)),
        functools.partial(below, table=np.ones(69)), functools.partial(by_distance, table=np.ones(7)), by_constant,
        raising,
    ])


def test_a_failure_for_a_hidden_key_has_no_effect():
    for score_mod, options in ((functools.partial(by_distance, table=np.arange(7.0)), {"window": (3, 3)}),
                               (raising, {"kv_lengths": 69}), (raising, {"mask": np.arange(70) != 69})):  # fmt: skip
        exact = attention(q, k, v, score_mod=score_mod, backend="reference", **options)
        out = attention(q, k, v, score_mod=score_mod, backend="cython", **options)
        np.testing.assert_allclose(out, exact, atol=1e-6)


def test_nan_in_an_input_is_no_failure():
    broken = v.copy()
    broken[0, 1, 5] = np.nan
    score_mod = functools.partial(by_distance, table=np.arange(7.0))
    out = attention(q, k, broken, score_mod=score_mod, window=(3, 3), backend="cython")
    assert np.isnan(out[0, 1, 2:9]).all()
    assert not np.isnan(out[0, 0]).any()


def test_functions_that_it_calls_are_checked():
    @numba.njit
    def look_up(i):
        return NINE[i]

    @numba.njit
    def count_down(i):
        return look_up(i) if i < 9 else count_down(i - 1) + look_up(i)

    def calling(helper):
        return lambda score, b, h, q, kv: score + helper(q)

    assert look_up(3) == 3, "compiled already, without checks"
    for helper in (look_up, count_down):
        with pytest.raises(InputError, match="score_mod failed for a key of b=0, h=0, q_index="):
            attention(q, k, v, score_mod=calling(helper), backend="cython")


@pytest.mark.parametrize(("function", "got"), [
    (lambda s, b, h, q, kv: s * 1j, "complex128"),
    (lambda s, b, h, q, kv: (s, s), "float32"),
    (lambda s, b, h, q, kv: None, "none"),
    (lambda s, b, h, q, kv: s if q > kv else None, "OptionalType"),
    (lambda s, b, h, q, kv: "text", "text"),
    (lambda s, b, h, q, kv: q >= kv, "bool"),
    (lambda s, b, h, q, kv: s if q >= kv else False, "bool"),
    (lambda s, b, h, q, kv: q >= kv and s, "bool"),
])  # fmt: skip
def test_the_result_is_a_number(function, got):
    with pytest.raises(InputError, match=f"expected a number as the result in every case, got .*{got}.*-math.inf`"):
        compile_score_mod(function)
    zeros = np.zeros((1, 1, 2, 3), np.float32)
    with pytest.raises(InputError, match=r"score_mod must return a number, .* else -math\.inf`"):
        attention(zeros, zeros, zeros, score_mod=function, backend="reference")


def test_a_product_with_a_bool_is_a_number():
    check(lambda s, b, h, q, kv: s * (q >= kv))


def five_and_one(score, b, h, q, kv, table):
    return score + table[q]


def test_wrong_arguments(refusals):
    refusals(lambda score_mod: compile_score_mod(score_mod), [
        3, max, lambda score, q, kv: score, lambda *everything: 0, five_and_one,
        functools.partial(five_and_one, tabel=SLOPES), functools.partial(five_and_one, table=SLOPES, b=0),
        functools.partial(five_and_one, 1.0), functools.partial(five_and_one, table=[1.0]),
        functools.partial(five_and_one, table=None), functools.partial(five_and_one, table=np.ones(3, complex)),
        functools.partial(five_and_one, table=2**70),
    ])


def test_large_constants_are_refused():
    large = np.zeros(LARGEST_CONSTANT + 1, np.uint8)
    with pytest.raises(UnsupportedError, match=r"large has 65537 bytes.*functools.partial\(function, large=large\)"):
        compile_score_mod(lambda score, b, h, q, kv: score + large[kv])


def test_an_unbound_name_is_named():
    def make():
        score_mod = lambda score, b, h, q, kv: score + later[q]  # noqa: E731
        compile_score_mod(score_mod)
        later = SLOPES

    with pytest.raises(InputError, match="later, which it uses, has no value yet"):
        make()


def test_without_numba(monkeypatch):
    monkeypatch.setitem(sys.modules, "numba", None)
    with pytest.raises(BackendUnavailable, match=r"pip install '\.\[numba\]'.*backend='reference'"):
        compile_score_mod(alibi)


def test_importing_it_does_not_import_numba():
    code = "import sys, engine.backends.numba_cpu.compiler.score_mod; sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_fork_while_another_thread_compiles():
    """The child can compile too: a fork waits for the compilation of the other thread."""
    def make(slope):
        return lambda score, b, h, q, kv: score - slope * q

    def in_child(_):
        signal.alarm(60)
        compile_score_mod(make(3.0))

    compile_score_mod(make(1.0))
    other = begin(lambda: compile_score_mod(make(2.0)))
    time.sleep(0.02)
    assert read_child(in_child)[1] == 0
    other.result()
