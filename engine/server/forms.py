"""The form of a request: its bytes to checked fields, and the fields that all routes share to options of a service.

The modules of routes (`openai.py`, `tei.py` and others) build their `Route` objects from it; `app.py` reads bodies.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Literal, TypeAlias, TypeVar, get_args, get_origin, get_type_hints

import msgspec
import numpy as np

from ..base.errors import UnsupportedError, listed, nearest, shown
from ..encoding.text_encoder import ROLE_PROMPTS, role_prompt
from ..files.reading import FormatError, parse_json
from ..images import Images
from ..interface.engine import Engine
from ..interface.reranker import Reranker
from ..text.sentences import choose_prompt
from ..text.tokenizer import NO_TOKENIZER
from .json_steps import JsonRows
from .refusals import TEI, ErrorForm, NotFinite, Refusal
from .requests import Answer, RequestService

AnyModel: TypeAlias = Engine | Reranker
NO_TASK = ""
"""The `Wanted.task` of a route that needs no model: a worker calls `Wanted.body`, which computes the answer."""
AnyForm = TypeVar("AnyForm", bound=msgspec.Struct)
ROLES = {"search_query": "query", "query": "query", "search_document": "document", "document": "document",
         "passage": "document"}
"""The role of the texts for each `input_type`, by the words of Cohere, Jina and Voyage."""
TEXT_FIELDS = frozenset({"input", "inputs", "texts", "documents", "query", "queries", "text_1", "text_2"})
"""The fields of all routes that hold the texts for the model, in which {"content": [parts]} may stand for a text."""
PURPOSES = ("classification", "clustering")
"""The other values of `input_type`: each chooses the prompt of that name, if the model has one."""
_CUTS = {"none": False, "end": "right", "start": "left", "right": "right", "left": "left"}
"""The side that is cut for each word of Cohere and TEI in `truncate` and `truncation_direction`; False for none."""


class Form(msgspec.Struct, kw_only=True):
    """The fields that are common to all routes that need a model."""

    model: str | None = None
    prompt_name: str | None = None
    """The name of a prompt of the model, which stands in front of each text."""
    input_type: str | None = None
    """What the texts are, one of `ROLES` or `PURPOSES`."""
    truncate: bool | str | None = None
    """Whether a long text is cut: a flag, as TEI has it, or NONE, START or END, as Cohere has it."""
    truncation_direction: str | None = None
    """The end of a long text that is cut, left or right."""


@dataclass(frozen=True)
class Asked:
    """What the body of an answer repeats of its request."""

    request: str
    """The id of the request."""
    model: str
    """The name of the model."""


@dataclass(frozen=True)
class Wanted:
    """What the model computes for a request, and how the answer becomes a body."""

    task: str
    """One of the tasks of a service, or `NO_TASK`."""
    inputs: Any
    body: Callable[[Answer, Asked], Any]
    """Returns the body of an answer for `json_steps.write_json`, or bytes."""
    options: dict[str, Any] = field(default_factory=dict)
    """The options of the task beside those that all routes share."""
    single: bool = False
    """Whether the client gave one input, and not a list."""
    bytes: int = 0
    """An estimate of the memory of the answer, where `task` is `NO_TASK`."""
    events: Any = None
    """The writer of the events of a streamed answer, as in `text_routes.py`; None for other answers."""
    headers: Sequence[Any] = ()
    """More headers of the answer: pairs of bytes, a name in lower case and a value."""
    content_type: str = "application/json"
    """The media type of the answer; for another one than JSON, `body` returns bytes."""

    @property
    def characters(self) -> int:
        """The number of characters of the inputs that are texts, for TEI's header; 0 for chats and recordings."""
        if self.task in ("chat", "transcribe"):
            return 0
        query, texts = self.inputs if self.task == "rank" else ("", self.inputs)
        return len(query) + characters_of(texts)


@dataclass(frozen=True)
class Kind:
    """One form that the requests of a route may have: its fields, and what computes its answer."""

    family: ErrorForm
    """The form of its errors: OpenAI's, TEI's or another one."""
    form: type[msgspec.Struct]
    work: Callable[[Any, Any], Any]
    """Returns the `Wanted` for a form and the model of the service; raises `Refusal`."""
    tasks: tuple[str, ...] = ()
    """The tasks, by their names in services, of which the model must have one; () for a route that needs no model."""

    def wanted(self, fields: dict[str, Any], service: RequestService, path: str) -> Wanted:
        """Return the work for the fields of a request; raises `Refusal`. path: the route's, for messages."""
        if self.tasks and service.tasks.isdisjoint(self.tasks):
            raise Refusal("unsupported", f"{path} needs a model for {self.tasks[0]}, and {service.serves}")
        form: Any = read_form(fields, self.form)
        work: Wanted = self.work(form, service.model)
        if work.task and work.task not in service.tasks:
            raise Refusal("unsupported", f"{path} needs a model for {work.task}, and {service.serves}")
        options = options_of(form, self.family, service.model)
        chooses_prompt = len(options) > 1       # options beside truncation, which all requests have
        if chooses_prompt and (isinstance(work.inputs, Images) or any(isinstance(item, list) for item in work.inputs)):
            raise Refusal("wrong", "token ids and images are read as they are, without a prompt; leave prompt_name and "
                          "input_type out, or send texts", "prompt_name")
        return replace(work, options=options | work.options)


@dataclass(frozen=True)
class Route:
    """A path that answers POST, and the forms that its requests may have."""

    path: str
    kind: Kind
    others: Mapping[str, Kind] = field(default_factory=dict)
    """Other forms, each for the requests that have the field of that name."""

    def kind_of(self, fields: dict[str, Any]) -> Kind:
        """Return the form of a request, chosen by the names of its fields."""
        return next((kind for name, kind in self.others.items() if name in fields), self.kind)


def memory_of(data: bytes) -> tuple[int, int]:
    """Return upper estimates of the bytes that a body of JSON takes as a str, and as Python values, before it is read.

    A character takes up to 4 bytes. A list or an object of one value takes 64 bytes more than the value, and a value
    80 more than its characters: a str of two, or a number, with its place in a list and in the list of a form.
    """
    text = len(data) if data.isascii() else 4 * len(data)
    return text, text + 64 * (data.count(b"[") + data.count(b"{")) + 80 * data.count(b",")


def read_fields(data: bytes, limit: int) -> dict[str, Any]:
    """Return the fields of a body of JSON, unchecked; raises `Refusal`. limit: the most bytes of the body."""
    try:
        fields = parse_json(data, limit)
    except FormatError as error:
        raise Refusal("wrong", f"the body is no JSON that can be read: {error}") from None
    if not isinstance(fields, dict):
        raise Refusal("wrong", f"the body must be a JSON object with fields, not {shown(fields, 60)}")
    return fields


def read_form(fields: dict[str, Any], form: type[AnyForm], strict: bool = True) -> AnyForm:
    """Return checked fields; raises `Refusal`, which names the field. strict: False reads numbers from texts."""
    known = form.__struct_fields__
    for name in fields:
        if name not in known:       # a misspelled option would otherwise have no effect, unseen
            raise Refusal("wrong", f"there is no field {listed([name])}{nearest(name, known)}; this route has "
                          f"{', '.join(known)}", listed([name]))
    try:
        try:
            return msgspec.convert(fields, form, strict=strict)
        except msgspec.ValidationError:
            if (joined := _with_joined_parts(fields)) is None:
                raise
            fields = joined
            return msgspec.convert(fields, form)
    except UnicodeEncodeError:
        raise Refusal("wrong", "a text has half of a surrogate pair, and so it is not valid Unicode") from None
    except msgspec.ValidationError as error:
        # msgspec says "MESSAGE - at `$.name[0]`"; for a missing field, the place is that of the object around it.
        match = re.fullmatch(r"(.*?)(?: - at `\$\.?(.*)`)?", str(error), re.DOTALL)
        assert match is not None
        missing = re.fullmatch(r"Object missing required field `(\w+)`", match[1])
        name = ".".join(part for part in (match[2], missing and missing[1]) if part)
        why = "the field is missing" if missing else match[1][:1].lower() + match[1][1:]
        choices = _choices(form).get(re.split(r"[.[]", name)[0])
        if choices and not missing and re.match("invalid enum value|expected `str", why):
            raise Refusal("wrong", f"{name} must be {choices}, not {shown(_at(fields, name))}", name) from None
        raise Refusal("wrong", f"{name}: {why}", name) from None


def _with_joined_parts(fields: dict[str, Any]) -> dict[str, Any] | None:
    """Return fields in which each {"content": [parts]} is replaced by the text of its parts; None if there is none.

    Raises `Refusal` for a part that is no text. A list of parts without "content" stays as it is: it may mean one text
    or several. The values of the caller are not changed.
    """
    any_joined = False

    def joined(value: Any, place: str) -> Any:
        """Return a value, at `place` of the body, in which such objects are replaced at any depth."""
        nonlocal any_joined
        if isinstance(value, list):
            return [joined(item, f"{place}[{i}]") if isinstance(item, (list, dict)) else item
                    for i, item in enumerate(value)]
        if not isinstance(value, dict):
            return value
        parts = value.get("content")
        if value.keys() != {"content"} or not isinstance(parts, list):
            return {name: joined(item, f"{place}.{name}") for name, item in value.items()}
        any_joined = True
        if len(parts) == 1 and isinstance(parts[0], dict) and "text" not in parts[0]:
            return parts[0]     # an image, which `images.py` reads
        for i, part in enumerate(parts):
            if not isinstance(part, dict) or part.keys() != {"type", "text"} or part["type"] != "text" or (
                    not isinstance(part["text"], str)):
                raise Refusal("wrong", f"{place}.content[{i}] must be a text, as {{\"type\": \"text\", \"text\": "
                              f"\"...\"}}, or one image alone, not {shown(part, 60)}", place)
        return "".join(part["text"] for part in parts)

    fields = {name: joined(value, name) if name in TEXT_FIELDS else value for name, value in fields.items()}
    return fields if any_joined else None


@cache
def _choices(form: type[msgspec.Struct]) -> dict[str, str]:
    """Return "A, B or C" for each field of a form whose type is a `Literal` of such values."""
    choices = {}
    for name, kind in get_type_hints(form).items():
        if values := [str(value) for value in _literals(kind)]:
            choices[name] = " or ".join(part for part in (", ".join(values[:-1]), values[-1]) if part)
    return choices


def _literals(kind: Any) -> list[Any]:
    """Return the values of all `Literal` in a type such as `Literal["a", "b"] | None`."""
    if get_origin(kind) is Literal:
        return list(get_args(kind))
    return [value for part in get_args(kind) for value in _literals(part)]


def _at(fields: Any, name: str) -> Any:
    """Return the value at a place of a body, such as `input[0].image`."""
    for part in re.findall(r"\w+", name):
        fields = fields[int(part)] if isinstance(fields, list) else fields[part]
    return fields


def check_items(name: str, items: Sequence[Any], what: str = "text") -> None:
    """Raise `Refusal` for an empty list. name: the field's. what: the noun for an item, in the message."""
    if not items:
        raise Refusal("empty", f"{name} is an empty list; give at least one {what}", name)


def check_most(name: str, count: int, most: int, unit: str, made: str) -> None:
    """Raise `Refusal` for a field with more than `most` items.

    unit: what is counted, "characters" or "ids". made: what the items become, for the message: "tokens" or "texts".
    """
    if count > most:
        raise Refusal("too_large", f"{name} has {count:,} {unit}, and at most {most:,} are made {made} in one request; "
                      "send several", name)


def texts_or_ids(name: str, value: Any) -> tuple[list[Any], bool]:
    """Return the inputs of a field that has a text, token ids, or a list of either; and whether it has one input.

    Raises `Refusal` for a list with inputs of several kinds, and for an empty list.
    """
    if isinstance(value, str):
        return [value], True
    check_items(name, value)
    kinds = {type(item) for item in value}
    if kinds == {int}:
        return [value], True
    if len(kinds) > 1:
        raise Refusal("wrong", f"{name} must be a text, texts, token ids or lists of token ids, and its items are of "
                      "several kinds", name)
    if list in kinds:
        for i, ids in enumerate(value):
            if not ids:
                raise Refusal("empty", f"{name}: item {i} is an empty list; give at least one token id", name)
    return value, False


def characters_of(inputs: Sequence[Any]) -> int:
    """Return the number of characters of all texts and tuples of texts among the inputs; others count 0."""
    texts = (text for item in inputs for text in (item if isinstance(item, tuple) else (item,)))
    return sum(len(text) for text in texts if isinstance(text, str))


def top_of(top_n: int | None) -> dict[str, int]:
    """Return the option `top_k`, how many of the best documents an answer has, {} for all of them; raises `Refusal`."""
    if top_n is not None and top_n < 1:
        raise Refusal("wrong", f"top_n must be at least 1, not {top_n}", "top_n")
    return {} if top_n is None else {"top_k": top_n}


def check_not_empty(name: str, texts: Sequence[Any]) -> None:
    """Raise `Refusal` for an empty text, or a pair of empty texts, in a field whose family of routes forbids them."""
    for i, text in enumerate(texts):
        if text == "" or text == ("", ""):
            raise Refusal("empty", f"{name}: text {i} is empty", name)


def role_of(form: Form) -> str | None:
    """Return the role of the texts, "query" or "document", by `input_type`; None if that names none."""
    return None if form.input_type is None else ROLES.get(form.input_type.lower())


def dimensions_of(form: Any, model: AnyModel) -> dict[str, Any]:
    """Return the option `truncate_dim` for the field `dimensions`; raises `Refusal` for more than the model has.

    Returns {} if the field is missing. form: has the property `dimensions`.
    """
    dimensions = form.dimensions
    if dimensions is None or not isinstance(model, Engine):
        return {}
    engine = model.engine_of(role_of(form) if model.routes else None)       # some models have one encoder a role
    whole = engine if engine.text is None else engine.with_text(truncate_dim=None)
    most = whole.get_embedding_dimension()
    if not 1 <= dimensions <= most:
        name = next(name for name in ("dimensions", "output_dimension") if name in form.__struct_fields__)
        raise Refusal("wrong", f"{name} must be from 1 to {most:,}, the width of this model's vectors, not "
                      f"{shown(dimensions)}", name)
    return {"truncate_dim": dimensions}


def finite(array: Any) -> np.ndarray:
    """Return an array of any shape as orjson needs it, contiguous; raises `NotFinite` for NaN or infinity."""
    if not np.isfinite(array).all():
        raise NotFinite
    return np.ascontiguousarray(array)


def scored_rows(rows: Sequence[Any], single: bool) -> JsonRows:
    """Return the rows of labels or tags for `write_json`, or the only row itself; raises `NotFinite`.

    rows: for each input a list of dicts with a "score". single: whether the client sent one input, not a list.
    """
    for row in rows:
        finite([one["score"] for one in row])
    return JsonRows(rows[0] if single else rows)


def options_of(form: Form, family: ErrorForm, model: AnyModel) -> dict[str, Any]:
    """Return the options of a service (truncation, and at most one choice of a prompt) for a form; raises `Refusal`.

    family: chooses what happens to long texts where the request does not say it.
    """
    options: dict[str, Any] = {"truncation": _truncation(form, family, model)}
    if form.prompt_name is not None and form.input_type is not None:
        raise Refusal("wrong", "prompt_name and input_type both choose a prompt; give one of them", "input_type")
    if form.prompt_name is not None:
        options["prompt_name"] = form.prompt_name
    elif form.input_type is not None:
        kind = form.input_type.lower()
        if (role := role_of(form)) is not None:
            options["role"] = role
        elif kind in PURPOSES:
            prompts = model.text.prompts if model.text is not None else {}
            options["prompt"] = next((prompt for name, prompt in prompts.items() if name.lower() == kind), "")
        else:
            raise Refusal("wrong", f"input_type must be one of {', '.join([*ROLES, *PURPOSES])}, not "
                          f"{shown(form.input_type)}", "input_type")
    return options


def prompt_of(form: Form, model: AnyModel) -> str:
    """Return the prompt that a request puts in front of each text, "" for none; raises `Refusal` and `InputError`."""
    options = options_of(form, TEI, model)
    if model.text is None:
        raise UnsupportedError(NO_TOKENIZER)
    if (role := options.get("role")) is not None:
        return role_prompt(model.text, ROLE_PROMPTS[role])
    return choose_prompt(model.text, options.get("prompt"), options.get("prompt_name"))


def _truncation(form: Form, family: ErrorForm, model: AnyModel) -> bool:
    """Return whether long texts are cut; raises `Refusal` for an unknown word, and for a side that cannot be cut.

    The side must be the one that the tokenizer of the model cuts.
    """
    cut, end = form.truncate, form.truncation_direction
    asked: Any = family.cuts if cut is None else cut        # a flag, or the side on which a text is cut
    if isinstance(cut, str):
        if cut.lower() not in _CUTS:
            raise Refusal("wrong", f'truncate must be true, false, "NONE", "START" or "END", not {shown(cut)}',
                          "truncate")
        asked = _CUTS[cut.lower()]
    if end is not None and _CUTS.get(end.lower()) not in ("left", "right"):
        raise Refusal("wrong", f'truncation_direction must be "left" or "right", not {shown(end)}',
                      "truncation_direction")
    sides = {"truncate": asked if isinstance(asked, str) else None,
             "truncation_direction": _CUTS[end.lower()] if asked and end is not None else None}
    for name, side in sides.items():
        if side is not None and side != model.tokenizer.truncation_side:
            raise Refusal("wrong", "the tokenizer of this model cuts long texts on the "
                          f"{model.tokenizer.truncation_side}, and cannot cut them on the {side}", name)
    return bool(asked)
