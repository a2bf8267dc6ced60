"""Mistakes in the interpreter of programs and in what prepares its instructions, with the kernels as they are."""

from __future__ import annotations

from functools import partial

from .mistake import Mistake

_native = partial(Mistake, build=("native",))

MISTAKES = (
    Mistake(
        name="missing-barrier",
        what="Threads do not meet before an instruction that overwrites what others may still read.",
        file="engine/backends/cpu/lowering.py",
        right="        meet = meet or any(self._clash(earlier, how) for name, how in writes.items()\n"
              "                           for earlier in self.read.get(name, ()))\n",
        wrong="",
        tests="tests/programs/test_program.py",
        caught_by=("tests/programs/test_program.py::test_threads_meet_before_one_overwrites_what_another_reads",),
    ),
    Mistake(
        name="bias-of-the-first-rows",
        what="Each run of columns of a packed map gets the bias of the map's first rows.",
        file="engine/backends/cpu/packer.py",
        right="bias[column : column + rows.stop - rows.start] = self._weights[part.bias][rows]",
        wrong="bias[column : column + rows.stop - rows.start] = self._weights[part.bias][: rows.stop - rows.start]",
        tests="tests/families/test_vectors.py -k 'bert_tanh or modernbert_biases'",
        caught_by=(
            "tests/families/test_vectors.py::test_a_batch_of_transformers_with_holes_and_padding_on_both_sides",
            "tests/families/test_vectors.py::test_a_ragged_batch_and_each_alone",
        ),
    ),
    Mistake(
        name="longest-sequences-last",
        what="The shortest sequences are started first, so that one thread ends with the longest.",
        file="engine/backends/cpu/schedule.py",
        right='order = np.argsort(-lengths, kind="stable")',
        wrong='order = np.argsort(-lengths, kind="stable")[::-1]',
        tests="tests/backends/cpu/test_schedule.py",
        caught_by=(
            "tests/backends/cpu/test_schedule.py::test_every_sequence_is_in_one_group_within_the_workspace",
            "tests/backends/cpu/test_schedule.py::test_longest_sequences_come_first",
        ),
    ),
    _native(
        name="stale-gathered-head",
        what="The keys that a thread has gathered for one head are used for the next head as well.",
        file="engine/backends/cpu/native/state.pxi",
        right="if own.sequence == sequence and own.op == op and own.head == h:",
        wrong="if own.sequence == sequence and own.op == op:",
        tests="tests/backends/cpu/test_decoder.py tests/backends/cpu/test_random_decoders.py",
        caught_by=("tests/backends/cpu/test_decoder.py::test_the_cache_changes_no_bit",),
    ),
    _native(
        name="band-of-earlier-passes",
        what="The window of a query does not move with the tokens of earlier passes.",
        file="engine/backends/cpu/native/state.pxi",
        right="few.low, few.high, few.k_stride, few.v_stride = op.low + past, op.high + past, e, e",
        wrong="few.low, few.high, few.k_stride, few.v_stride = op.low, op.high + past, e, e",
        tests="tests/backends/cpu/test_decoder.py tests/backends/cpu/test_random_decoders.py",
        caught_by=("tests/backends/cpu/test_decoder.py::test_the_cache_changes_no_bit",),
    ),
    _native(
        name="rows-of-a-block",
        what="A block of rows that begins inside a sequence gets the embeddings of its first tokens.",
        file="engine/backends/cpu/native/program.pxi",
        right="job.machine.kernels.embed(&call, sequence.source + begin - sequence.row, end - begin, op.width,",
        wrong="job.machine.kernels.embed(&call, sequence.source, end - begin, op.width,",
        tests="tests/backends/cpu/test_plan.py",
        caught_by=("tests/backends/cpu/test_plan.py::test_against_float64",),
    ),
    _native(
        name="run-of-positions",
        what="Rows in a run of positions that does not rise by one are rotated as if it did.",
        file="engine/backends/cpu/native/program.pxi",
        right="while begin + run < end and positions[run] == positions[0] + run:",
        wrong="while begin + run < end and positions[run] >= positions[0]:",
        tests="tests/backends/cpu/test_plan.py -k rotary",
        caught_by=("tests/backends/cpu/test_plan.py::test_rotary_positions_in_any_order",),
    ),
    _native(
        name="padding-of-the-vocabulary",
        what="The columns behind the last token of a vocabulary may be chosen as tokens.",
        file="engine/backends/cpu/native/vocabulary.pxi",
        right="columns, panel = min(call.V - part * PART, <Py_ssize_t>PART), part * (PART // NR)",
        wrong="columns, panel = min(call.linear.N - part * PART, <Py_ssize_t>PART), part * (PART // NR)",
        tests="tests/backends/kernels/test_choose.py -k 'product and not numba'",
        caught_by=("tests/backends/kernels/test_choose.py::test_product_with_every_number_of_columns",),
    ),
    _native(
        name="merge-of-the-best",
        what="The best logits of another thread are taken up to the last but one.",
        file="engine/backends/cpu/native/vocabulary.pxi",
        right="for i in range(row * best.k, (row + 1) * best.k):",
        wrong="for i in range(row * best.k, (row + 1) * best.k - (best.k > 1)):",
        tests="tests/backends/kernels/test_choose.py -k 'product and not numba'",
        caught_by=("tests/backends/kernels/test_choose.py::test_product_with_every_number_of_rows",),
    ),
    _native(
        name="equal-logits",
        what="Among equal logits the highest id comes first.",
        file="engine/backends/cpu/native/best.pxi",
        right="<unsigned int>id < <unsigned int>other_id)",
        wrong="<unsigned int>id > <unsigned int>other_id)",
        tests="tests/backends/kernels/test_choose.py -k portable",
        caught_by=(
            "tests/backends/kernels/test_choose.py::test_the_lowest_id_comes_first_among_equals",
            "tests/backends/kernels/test_choose.py::test_infinite_logits",
        ),
        build=("native", "kernels_portable"),
        isa="portable",
    ),
    _native(
        name="ranges-of-the-first-block",
        what="In int8, later blocks of a source's rows are multiplied with the ranges of the first block.",
        file="engine/backends/cpu/native/maps.pxi",
        right="job.ranges + map.rows.start + row, M, NULL,",
        wrong="job.ranges + map.rows.start, M, NULL,",
        tests="tests/backends/cpu/test_decoder.py -k keeps_its_range",
        caught_by=("tests/backends/cpu/test_decoder.py::test_every_row_of_a_long_source_keeps_its_range_in_int8",),
    ),
    _native(
        name="deadline-from-now",
        what="The deadline of a pass is taken for a time that counts from its start.",
        file="engine/backends/cpu/native/executor.pxi",
        right="if job.deadline and monotonic_seconds() > job.deadline:",
        wrong="if job.deadline and monotonic_seconds() > job.looked + job.deadline:",
        tests="tests/backends/cpu/test_stop.py -k 'deadline or timeouts'",
        caught_by=(
            "tests/backends/cpu/test_stop.py::test_a_deadline_stops_a_pass",
            "tests/backends/cpu/test_stop.py::test_timeouts_of_an_engine",
        ),
    ),
    _native(
        name="angles-of-the-first-sequence",
        what="All sequences are rotated by the angles of the first one.",
        file="engine/backends/cpu/native/operations.pxi",
        right="angles = b * r.angles_b + t * rotary.stride",
        wrong="angles = t * rotary.stride",
        tests="tests/ops/test_every_backend.py -k 'rotary and not numba'",
        caught_by=("tests/ops/test_every_backend.py::test_rotary",),
    ),
    _native(
        name="bias-of-later-queries",
        what="Queries of a later work item get the bias of the first queries.",
        file="engine/backends/cpu/native/attention_operation.pxi",
        right="call.bias += b * a.bias[0] + h * a.bias[1] + t * call.bias_t",
        wrong="call.bias += b * a.bias[0] + h * a.bias[1]",
        tests="tests/ops/test_every_backend.py -k 'long and not numba'",
        caught_by=(
            "tests/ops/test_every_backend.py::test_every_query_of_a_long_sequence_has_its_own_bias_and_mask",
            "tests/ops/test_every_backend.py::test_attention_of_long_sequences",
        ),
    ),
    _native(
        name="sums-of-int8-panels",
        what="The sums of packed int8 columns that a file holds are replaced by zeros.",
        file="engine/backends/cpu/native/weights.pxi",
        right="self.sums = np.zeros(N, np.float32) if sums is None else sums",
        wrong="self.sums = np.zeros(N, np.float32)",
        tests="tests/weights/test_packed.py",
        caught_by=(
            "tests/weights/test_packed.py::test_the_same_bits",
            "tests/weights/test_packed.py::test_the_command",
        ),
    ),
    _native(
        name="affinity-of-a-worker",
        what="A worker never gets back the CPU that it had to keep off.",
        file="engine/backends/cpu/native/pool.c",
        right="    if (self->kept_off) sched_setaffinity(0, sizeof self->allowed, &self->allowed);",
        wrong="    if (self->kept_off) sched_getaffinity(0, sizeof self->allowed, &self->allowed);",
        tests="tests/backends/cpu/test_pool.py",
        caught_by=("tests/backends/cpu/test_pool.py::test_workers_keep_the_cpus_they_may_use",),
    ),
)
