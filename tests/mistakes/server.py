"""Mistakes in the server."""

from __future__ import annotations

from .mistake import Mistake

ROUTES, HTTP = "tests/server/test_routes.py", "tests/server/test_http.py"
ORDER = "tests/queues/test_order.py"

MISTAKES = (
    Mistake(
        name="answer-that-is-no-number",
        what="A server answers NaN, which JSON has no number for, as if it were a result.",
        file="engine/server/forms.py",
        right="    if not np.isfinite(array).all():",
        wrong="    if array is None:",
        tests=HTTP,
        caught_by=(f"{HTTP}::test_a_result_that_is_no_number_is_an_error_of_its_request_alone",),
    ),
    Mistake(
        name="role-without-its-prompt",
        what="input_type chooses no prompt, so that queries are encoded as documents are.",
        file="engine/server/forms.py",
        right='            options["role"] = role\n',
        wrong="            pass\n",
        tests=ROUTES,
        caught_by=(f"{ROUTES}::test_prompts_mean_the_same_in_every_route",),
    ),
    Mistake(
        name="work-for-nobody",
        what="The request of a client that has gone stays in the queue.",
        file="engine/server/app.py",
        right="            watch(None)\n            future.cancel()\n",
        wrong="            watch(None)\n",
        tests=HTTP,
        caught_by=(f"{HTTP}::test_a_client_that_has_gone_is_dropped",),
    ),
    Mistake(
        name="any-key",
        what="A server with keys serves every client that sends one.",
        file="engine/server/keys.py",
        right="            if hmac.compare_digest(one, given):",
        wrong="            if hmac.compare_digest(given, given):",
        tests=HTTP,
        caught_by=(f"{HTTP}::test_a_key_is_needed",),
    ),
    Mistake(
        name="prompt-of-a-neighbour",
        what="In a batch of several requests, pooling leaves out no tokens of a prompt.",
        file="engine/text/tokenizer.py",
        right="                  skips, reads, asked)",
        wrong="                  None, reads, asked)",
        tests="tests/text/test_tokenizer.py -k several_calls",
        caught_by=("tests/text/test_tokenizer.py::test_tokens_of_several_calls_keep_what_belongs_to_each",),
    ),
    Mistake(
        name="one-skip-for-all",
        what="The vectors of neighbours of one length leave out as many tokens as the first of them.",
        file="engine/encoding/pooling.py",
        right="(lengths[1:] != lengths[:-1]) | (skips[1:] != skips[:-1])",
        wrong="lengths[1:] != lengths[:-1]",
        tests="tests/encoding/test_pooling.py",
        caught_by=("tests/encoding/test_pooling.py::test_neighbours_of_one_length_change_no_bit",),
    ),
    Mistake(
        name="failure-of-a-whole-batch",
        what="A request that fails takes the others of its batch along.",
        file="engine/queues/model_queue.py",
        right="                self._run([waiting], begun)\n",
        wrong="                raise fault\n",
        tests="tests/queues/test_model_queue.py -k fails_alone",
        caught_by=("tests/queues/test_model_queue.py::test_a_work_that_raises_fails_alone",),
    ),
    Mistake(
        name="turns-in-order-of-arrival",
        what="A list is taken whole before a text that came later.",
        file="engine/queues/order.py",
        right="            entry.time += size\n",
        wrong="",
        tests=ORDER,
        caught_by=(f"{ORDER}::test_a_long_list_delays_a_single_piece_by_no_batch_that_begins_later",),
    ),
    Mistake(
        name="time-of-an-owner-stands",
        what="New works get the time of the first one, so that short ones without end keep a list waiting.",
        file="engine/queues/order.py",
        right="            owner.start += size / owner.works\n",
        wrong="",
        tests=ORDER,
        caught_by=(f"{ORDER}::test_single_pieces_without_end_leave_a_list_its_share",),
    ),
    Mistake(
        name="memory-is-not-given-back",
        what="The memory of a request that was answered stays counted.",
        file="engine/server/service.py",
        right="            request.room.close()\n",
        wrong="            pass\n",
        tests="tests/server/test_service.py -k 'gone or submit_cancel'",
        caught_by=("tests/server/test_service.py::test_a_client_that_has_gone_leaves_the_queue",),
    ),
    Mistake(
        name="socket-of-a-server-that-loads",
        what="A server takes the Unix socket of another one that does not listen yet.",
        file="engine/server/start.py",
        right="    stack.callback(give_up)\n",
        wrong="    give_up()\n",
        tests=f"{HTTP} -k at_once",
        caught_by=(f"{HTTP}::test_servers_that_start_at_once_on_one_socket",),
    ),
)
