"""Mistakes in the server."""

from __future__ import annotations

from .mistake import Mistake

ROUTES, HTTP = "tests/server/test_routes.py", "tests/server/test_http.py"

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
        right="            watcher.cancel()\n            future.cancel()\n",
        wrong="            watcher.cancel()\n",
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
)
