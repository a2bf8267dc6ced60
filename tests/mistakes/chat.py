"""Mistakes in the chat: the template, its process, and the filter of system calls."""

from .mistake import seed

MISTAKES = (
    seed("A control token inside of a message ends the message.",
         "engine/chat/template.py",
         'marked = self._control.sub(rf"{self.start}\\g<0>{self.end}", text)',
         "marked = text",
         "tests/chat/test_template.py::test_control_tokens_of_a_message_are_text",
         "tests/chat/test_template.py::test_texts_and_ids_of_transformers"),
    seed("The renderer may write to every descriptor.",
         "engine/chat/system_calls.py",
         'for name, descriptor in (("read", 0), ("write", 1)):',
         'for name, descriptor in (("read", 0), ("write", 2)):',
         "tests/chat/test_system_calls.py::test_every_number"),
    seed("A process whose answer nobody read is asked again, and the next call reads that answer.",
         "engine/chat/renderer.py",
         "            self.end()      # the rest of a request or of an answer in a pipe would spoil the next one\n",
         "",
         "tests/chat/test_renderer.py::test_time_and_cancellation_and_interrupts"),
)
