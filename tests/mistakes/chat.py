"""Mistakes in the chat: the template, its process, and the filter of system calls."""

from __future__ import annotations

from .mistake import Mistake

MISTAKES = (
    Mistake(
        name="control-tokens-of-a-message",
        what="A control token inside of a message ends the message.",
        file="engine/chat/template.py",
        right='marked = self._control.sub(rf"{self.start}\\g<0>{self.end}", text)',
        wrong="marked = text",
        tests="tests/chat/test_template.py",
        caught_by=(
            "tests/chat/test_template.py::test_control_tokens_of_a_message_are_text",
            "tests/chat/test_template.py::test_texts_and_ids_of_transformers",
        ),
    ),
    Mistake(
        name="any-descriptor",
        what="The renderer may write to every descriptor.",
        file="engine/chat/system_calls.py",
        right='for name, descriptor in (("read", 0), ("write", 1)):',
        wrong='for name, descriptor in (("read", 0), ("write", 2)):',
        tests="tests/chat/test_system_calls.py",
        caught_by=("tests/chat/test_system_calls.py::test_every_number",),
    ),
    Mistake(
        name="half-of-an-answer",
        what="A process whose answer nobody read is asked again, and the next call reads that answer.",
        file="engine/chat/renderer.py",
        right="            self.end()      # half of a request or of an answer would be read as the next one\n",
        wrong="",
        tests="tests/chat/test_renderer.py",
        caught_by=("tests/chat/test_renderer.py::test_time_and_cancellation_and_interrupts",),
    ),
)
