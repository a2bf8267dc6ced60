"""The program of the process that renders chat templates of model files, and that can do nothing else.

A template is a program, and comes from whoever made the model. Jinja's sandbox keeps it away from Python, and has been
escaped before (CVE-2024-56201, CVE-2024-56326, CVE-2025-27516). So this process has limits on memory and time, no file
but the two pipes to its parent, and a filter of system calls, before it reads the first template.

`renderer.py`, in the parent, starts this file by its path, without the engine. So it imports the standard library and
Jinja2 alone, and imports all that it may need before the filter is set, because the filter forbids to open files.

    request     length, number, JSON: template and values; or template alone, for its own texts
    answer      length, number, kind, text in UTF-8

All that a template does is as in `apply_chat_template` of transformers 5.23, whose templates these are.
"""

from __future__ import annotations

import ctypes
import gc
import json
import mmap
import os
import resource
import select
import signal
import struct
import sys
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

REQUEST = struct.Struct("<IQ")
ANSWER = struct.Struct("<IQB")
READY, TEXT, REFUSED, FAILED, LONG, MEMORY, LEAVING = range(7)
"""The kinds of answers: the process is ready (its text: "", or why it has no filter); a rendered text; the template
called `raise_exception`; another exception; the text is too long; the memory is too small; the process ends without
having read another request."""
MAX_ANSWER = 4_000_000
"""The most characters of a rendered text."""
MAX_ERROR = 1000
"""The most characters of the message of an exception."""
SECONDS = 3.0
"""The CPU time of one request."""
MEMORY_BYTES = 256 * 2**20
"""The bytes of address space that the process may take after it is ready."""
ROOM_BYTES = 224 * 2**20
"""The bytes of address space that must be free before a request; otherwise the process ends, and a new one begins."""
IDLE_SECONDS = 60.0
"""How long the process waits for a request before it ends, in seconds."""
_ALL_SECONDS = 3600
"""The limit on the CPU time of the process. It ends itself before that; the limit is for a hijacked process."""
_KEPT = 8
"""The most compiled templates that are kept."""
_NO_NEW_PRIVS, _SET_SECCOMP, _FILTER = 38, 22, 2
"""The constants PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP and SECCOMP_MODE_FILTER of prctl(2)."""

WARM_UP = """{# every construct, so that nothing is imported later #}
{%- set ns = namespace(first=true, n=0) %}
{%- macro shown(x, y='a') %}{{ x|trim ~ y }}{{ caller() if caller }}{% endmacro %}
{%- for m in messages if m.role != 'none' recursive %}
{% if loop.first and not loop.last %}{% continue %}{% elif m is mapping and m['content'] is string %}
{{ shown(m.content) }}{% call shown(m.role) %}b{% endcall %}
{% generation %}{{ m|tojson(indent=2) }}{% endgeneration %}
{% else %}{{ m|string|upper|lower|title|capitalize }}{{ cycler('a', 'b').next() }}{{ joiner(',')() }}{% break %}
{% endif %}
{% set ns.n = ns.n + loop.index0 %}{% filter upper %}x{% endfilter %}{% with a = 1 %}{{ a }}{% endwith %}
{%- endfor %}{{ dict(a=1).items()|list }}{{ [3, 1]|sort|join(',')|e }}{{ 'a,b'.split(',')|map('upper')|list|tojson }}
{{ range(3)|select('odd')|list|length }}{{ [{'a': 1}]|selectattr('a', 'equalto', 1)|map(attribute='a')|list|sum }}
{{ '%s %d %.1f'|format('a', 1, 2.0) }}{{ '{:>3} {x}'.format('a', x=1) }}
{{ 'a b'|replace('a', 'b')|indent(2)|wordcount }}
{{ [1, 2]|groupby('real')|list|length }}{{ {'b': 1}|dictsort|first|last }}{{ 1.5|round|int|abs }}{{ 'x'|default('y') }}
{{ 'https://a.b'|urlize }}{{ 'a'|urlencode }}{{ '<a>b'|striptags }}{{ {'a': 1}|xmlattr }}{{ [1, 2]|batch(1)|list }}
{{ [1, 2]|slice(2)|list }}{{ 'aB'|safe|forceescape }}{{ 1024|filesizeformat }}
{{ 'a b'|wordwrap(1)|truncate(3)|center(9) }}
{{ [1, 1]|unique|list }}{{ [1]|min }}{{ [1]|max }}{{ [1]|random }}{{ 'a'|pprint }}{{ lipsum(1) }}{{ 'a'|attr('b') }}
{{ 'a' in 'ab' and 1 is odd or none is none }}{{ 'a'[::-1] }}{{ -7 // 2 % 3 ** 2 / 1 }}
{{ messages|reverse|list|length }}{{ strftime_now('%d %b %Y %A %j') }}{{ missing is defined }}{{ 'é\\n'|tojson }}
{{ 'a'.encode('utf-8').decode('utf-8') }}"""
WARM_UP_ERRORS = ("{{ raise_exception('a') }}", "{% if %}", "{{ a.b.c }}", "{{ ''.__class__.__mro__ }}", "{{ 1 / 0 }}",
                  "{{ 'a' + 1 }}", "{{ 'a'|nothing }}", "{% include 'a' %}", "{% import 'a' as b %}", "{{ [][1] }}",
                  "{{ '\\ud800' }}", "{{ range(999999) }}", "{{ namespace(_a=1) }}",
                  "{{ '{0.__class__}'.format(1) }}", "{{ 'a'.encode('utf-16').decode('latin-1') + 1 }}")
"""Templates that fail in every way, because the way to a message imports modules, too."""


def _extension() -> Any:
    """Return Jinja's extension for the tag `generation`, which marks texts of the assistant; here it has no effect."""
    from jinja2 import nodes
    from jinja2.ext import Extension

    class Generation(Extension):
        """Passes on the text between `generation` and `endgeneration`."""

        tags = {"generation"}  # noqa: RUF012, as Jinja's own extensions write it

        def parse(self, parser: Any) -> Any:
            """Return the node of a block, which calls `_passed_on`; Jinja calls this at the tag."""
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return nodes.CallBlock(self.call_method("_passed_on"), [], [], body).set_lineno(line)

        def _passed_on(self, caller: Callable[[], str]) -> str:
            return caller()

    return Generation


class _NewDict:
    """The object that templates get as `dict`: it makes dictionaries, but lacks the type's attributes."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict(*args, **kwargs)

    def fromkeys(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict.fromkeys(*args, **kwargs)


def _public_namespace() -> Any:
    """Return the class that templates get as `namespace`; it refuses names that begin with an underscore."""
    from jinja2.exceptions import SecurityError
    from jinja2.utils import Namespace

    def check(name: Any) -> None:
        """Raise `SecurityError`, with the message of transformers, for a name with an underscore in front."""
        if isinstance(name, str) and name.startswith("_"):
            raise SecurityError(f"Chat templates cannot store underscore-prefixed attributes on a namespace, but got "
                                f"{name!r}. Please rename the attribute.")

    class PublicNamespace(Namespace):
        """Jinja's namespace, whose attributes a template may set, without private names."""

        def __init__(*args: Any, **kwargs: Any) -> None:        # so that a template may name an attribute `self`
            attributes = dict(*args[1:], **kwargs)
            for name in attributes:
                check(name)
            Namespace.__init__(args[0], attributes)

        def __setitem__(self, name: str, value: Any) -> None:
            check(name)
            super().__setitem__(name, value)

    return PublicNamespace


def make_environment(now: Callable[[], datetime]) -> Any:
    """Return the environment of Jinja2 for all templates. now: returns the time that `strftime_now` writes."""
    from jinja2.exceptions import TemplateError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def raise_exception(message: str) -> None:
        raise TemplateError(message)

    def tojson(x: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None,
               sort_keys: bool = False) -> str:
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                                extensions=[_extension(), "jinja2.ext.loopcontrols"])
    environment.filters["tojson"] = tojson
    environment.globals |= {"raise_exception": raise_exception, "dict": _NewDict(), "namespace": _public_namespace(),
                            "strftime_now": lambda format: now().strftime(format)}
    return environment


class Templates:
    """Answers requests; keeps the last compiled templates and the date of the present request."""

    def __init__(self) -> None:
        self._now = datetime(2000, 1, 1)
        self._environment = make_environment(lambda: self._now)
        self._compiled: dict[str, Any] = {}

    def answer(self, request: dict[str, Any]) -> tuple[int, str]:
        """Return (kind, text) of the answer to a request."""
        try:
            text = self._answer(request)
            if len(text) > MAX_ANSWER:
                return LONG, f"{len(text):,}"
            text.encode()       # raises here for a lone surrogate, and not later in `_write`
            return TEXT, text
        except MemoryError:
            return MEMORY, ""
        except Exception as error:
            # `raise_exception` raises TemplateError itself; Jinja2's own errors are of subclasses.
            return (REFUSED if type(error).__name__ == "TemplateError" else FAILED), _message(error)

    def _answer(self, request: dict[str, Any]) -> str:
        """Return the rendered text of a request with values, or the template's own texts for one without."""
        template = request["template"]
        if "values" not in request:
            return self._own_texts(template)
        self._now = datetime(*request["date"])
        return self._template(template).render(**request["values"])

    def _template(self, template: str) -> Any:
        """Return the compiled template, and keep the last `_KEPT` ones."""
        compiled = self._compiled.pop(template, None) or self._environment.from_string(template)
        self._compiled[template] = compiled
        if len(self._compiled) > _KEPT:
            del self._compiled[next(iter(self._compiled))]
        return compiled

    def forget(self) -> None:
        """Free the memory of compiled templates and their constants, and of values in reference cycles."""
        self._compiled.clear()
        gc.collect()

    def _own_texts(self, template: str) -> str:
        """Return the literal texts and string constants of a template, joined with U+0000."""
        from jinja2 import nodes

        tree = self._environment.parse(template)
        texts = {node.data for node in tree.find_all(nodes.TemplateData)}
        texts |= {node.value for node in tree.find_all(nodes.Const) if isinstance(node.value, str)}
        return "\0".join(sorted(texts))


def _message(error: Exception) -> str:
    """Return the message of an exception, cut to `MAX_ERROR` characters."""
    try:
        text = str(error)
    except Exception:
        text = ""
    text = text if len(text) <= MAX_ERROR else f"{text[:MAX_ERROR]}..."
    return text.encode("utf-8", "replace").decode() or type(error).__name__


def warm_up(templates: Templates) -> None:
    """Import all modules that a template or an error can need, by rendering templates that use every feature."""
    import traceback  # noqa: F401
    import unicodedata  # noqa: F401

    import jinja2.debug  # noqa: F401

    messages = [{"role": "a", "content": "b"}, {"role": "a", "content": "b"}, {"role": "c", "content": [1]}]
    values = {"messages": messages, "a": {}}
    kind, text = templates.answer({"template": WARM_UP, "values": values, "date": [2000, 1, 1]})
    assert kind == TEXT, text
    for template in WARM_UP_ERRORS:
        templates.answer({"template": template, "values": values, "date": [2000, 1, 1]})
        templates.answer({"template": template})
    "a".encode("unicode_escape").decode("unicode_escape")
    json.loads(json.dumps({"é": [1, 2.5, None, True]}))


def set_limits() -> None:
    """Close all descriptors but the two pipes (0 and 1), and limit memory, files and CPU time."""
    with open("/proc/self/statm", encoding="ascii") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    os.closerange(2, min(resource.getrlimit(resource.RLIMIT_NOFILE)[0], 2**20))
    for limit, value in ((resource.RLIMIT_AS, used + MEMORY_BYTES), (resource.RLIMIT_FSIZE, 0),
                         (resource.RLIMIT_CORE, 0), (resource.RLIMIT_NOFILE, 2), (resource.RLIMIT_CPU, _ALL_SECONDS)):
        hard = resource.getrlimit(limit)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(limit, (value, value))


def set_filter(program: bytes) -> str:
    """Set the filter of system calls; return "", or the reason why it could not be set. program: BPF instructions."""
    if not program:
        return f"the engine has none for {os.uname().machine}"

    class Program(ctypes.Structure):
        """`struct sock_fprog` of the kernel: the number of the instructions, and a pointer to them."""

        _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))

    prctl = ctypes.CDLL(None, use_errno=True).prctl
    prctl.argtypes = [ctypes.c_int, ctypes.c_ulong, ctypes.c_void_p, ctypes.c_ulong, ctypes.c_ulong]
    filtering = Program(len(program) // 8, program)     # an instruction has 8 bytes
    # The kernel lets a process without privileges set a filter only after it has given up to gain any.
    if prctl(_NO_NEW_PRIVS, 1, None, 0, 0) or prctl(_SET_SECCOMP, _FILTER, ctypes.addressof(filtering), 0, 0):
        return os.strerror(ctypes.get_errno())
    return ""


def _has_room() -> bool:
    """Return whether `ROOM_BYTES` of address space are free, without using them."""
    try:
        mmap.mmap(-1, ROOM_BYTES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS).close()
    except OSError:
        return False
    return True


def _read(size: int) -> bytes:
    """Return exactly `size` bytes from the parent; end the process if the parent has closed the pipe."""
    parts = []
    while size:
        part = os.read(0, min(size, 2**20))
        if not part:
            os._exit(0)
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _write(number: int, kind: int, text: str) -> None:
    """Write an answer to request `number`, 0 for none; end the process if the parent has closed the pipe."""
    data = text.encode()
    data = ANSWER.pack(len(data), number, kind) + data
    try:
        while data:
            data = data[os.write(1, data) :]
    except BrokenPipeError:
        os._exit(0)


def main(program: bytes, seconds: float, idle: float) -> None:
    """Answer requests until the parent ends or is silent for `idle` seconds; if it cannot start, answer why.

    program: the filter of system calls. seconds: the CPU time of one request.
    """
    try:
        # A child inherits signals that its parent ignores or blocks; SIGPROF must end a template that takes too long.
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        templates = Templates()
        warm_up(templates)
        set_limits()
        refusal = set_filter(program)
    except Exception as error:
        _write(0, FAILED, f"{type(error).__name__}: {error}")
        return
    _write(0, READY, refusal)
    had_room = _has_room()      # False where the system itself gives less, so a lack of room later means nothing
    waiting = select.poll()
    waiting.register(0, select.POLLIN)
    while time.process_time() < _ALL_SECONDS / 2 and waiting.poll(idle * 1000):
        length, number = REQUEST.unpack(_read(REQUEST.size))
        signal.setitimer(signal.ITIMER_PROF, seconds)      # its signal, SIGPROF, ends the process
        kind, text = templates.answer(json.loads(_read(length)))
        signal.setitimer(signal.ITIMER_PROF, 0)
        if not _has_room():
            templates.forget()
        _write(number, kind, text)
        # A request that ran out of memory may have left the interpreter in any state.
        if kind == MEMORY or (had_room and not _has_room()):
            break
    _write(0, LEAVING, "")


if __name__ == "__main__":
    sys.path += sys.argv[4:]        # the folders of Jinja2 and MarkupSafe
    main(bytes.fromhex(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3]))
