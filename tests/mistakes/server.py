"""Mistakes in how a server takes requests, computes many together and answers each."""

from __future__ import annotations

from .mistake import Mistake

MISTAKES = (
    Mistake(
        name="prompt-of-a-neighbour",
        what="In a batch of several requests, pooling leaves out no tokens of a prompt.",
        file="engine/server/tasks.py",
        right="    return Tokens(ids, types, skips, reads)\n\n\n# Each",
        wrong="    return Tokens(ids, types, None, reads)\n\n\n# Each",
        tests="tests/server/test_service.py -k bits_of_a_call_alone",
        caught_by=("tests/server/test_service.py::test_each_answer_has_the_bits_of_a_call_alone",),
    ),
    Mistake(
        name="one-skip-for-all",
        what="The vectors of neighbours of one length leave out as many tokens as the first of them.",
        file="engine/encoding/pooling.py",
        right="np.flatnonzero(np.diff(lengths) | np.diff(skips))",
        wrong="np.flatnonzero(np.diff(lengths))",
        tests="tests/encoding/test_pooling.py",
        caught_by=("tests/encoding/test_pooling.py::test_neighbours_of_one_length_change_no_bit",),
    ),
    Mistake(
        name="failure-of-a-whole-batch",
        what="A request that fails takes the others of its batch along.",
        file="engine/server/batcher.py",
        right="                        _run_job(job, [one])\n",
        wrong="                        raise error\n",
        tests="tests/server/test_service.py -k fails",
        caught_by=("tests/server/test_service.py::test_a_request_that_fails_takes_no_other_along",),
    ),
    Mistake(
        name="turns-in-order-of-arrival",
        what="A list is taken whole before a text that came later.",
        file="engine/server/turns.py",
        right="        entry.time += size\n",
        wrong="",
        tests="tests/server/test_turns.py",
        caught_by=("tests/server/test_turns.py::test_a_long_list_delays_a_single_text_by_no_batch_that_begins_later",),
    ),
    Mistake(
        name="time-of-a-key-stands",
        what="New requests get the time of the first one, so that short ones without end keep a list waiting.",
        file="engine/server/turns.py",
        right="        key.now += size / key.waiting\n",
        wrong="",
        tests="tests/server/test_turns.py",
        caught_by=("tests/server/test_turns.py::test_single_texts_without_end_leave_a_list_its_share",),
    ),
    Mistake(
        name="memory-is-not-given-back",
        what="The memory of a request that was answered stays counted.",
        file="engine/server/service.py",
        right="        self._admission.release(request.bytes)\n",
        wrong="",
        tests="tests/server/test_service.py -k 'gone or submit_cancel'",
        caught_by=("tests/server/test_service.py::test_a_client_that_has_gone_leaves_the_queue",),
    ),
)
