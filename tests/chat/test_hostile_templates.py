"""A hostile template costs its own call an error, and nobody anything else.

ENGINE_CHAT=long renders all of them, gives each the 3 s of CPU time that it has in use, and looks at the CPU time and
at the memory of this process.
"""

import os
import resource

import pytest

from engine import InputError
from engine.base.stop import NEVER
from engine.chat.render import SECONDS
from engine.chat.renderer import Renderer

from ..tools.chats import ASKED, DATE
from ..tools.hostile_templates import ENDING, HOSTILE

LONG = os.environ.get("ENGINE_CHAT") == "long"


NAMES = [*HOSTILE] if LONG else [name for name in HOSTILE if name not in ENDING or ENDING.index(name) % 14 == 0]


@pytest.fixture(scope="module")
def renderer():
    made = Renderer(seconds=SECONDS if LONG else 0.1)
    yield made
    made.close()


def memory():
    """Return the resident bytes of this process."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def render(renderer, template):
    return renderer.render(template, {"messages": ASKED}, DATE, NEVER)


def test_there_are_many():
    assert len(HOSTILE) >= 80
    assert {*ENDING} < {*HOSTILE}


def used():
    """Return the CPU time that this process and its children have taken."""
    usages = [resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


@pytest.mark.parametrize("name", NAMES)
def test_the_next_chat_works(renderer, name):
    assert render(renderer, "{{ messages[0].role }}") == "user"
    before, start = memory(), used()
    try:
        text = render(renderer, HOSTILE[name])
    except InputError as error:
        text = str(error)
        assert len(text) < 1500
    assert len(text) <= 4_000_000
    assert not any(secret in text for secret in ("root:", "uid=", "<class '", "{'__name__'", "<module", "\x1b"))
    if LONG:
        renderer.close()        # so that the time of the process counts; its start was counted with the template before
        assert used() - start < 3.5
        assert memory() - before < 20e6
    assert render(renderer, "{{ messages[0].role }}") == "user"
