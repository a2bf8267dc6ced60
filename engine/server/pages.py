"""The GET pages of a server (health, metrics, models), and the errors of unknown paths and methods, by Starlette."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import orjson
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as Path

from ..base.version import __version__
from ..model.chat_config import DEFAULT, ChatConfig
from .metrics import CONTENT_TYPE
from .refusals import JSON, OPENAI, TEI, ErrorForm, Refusal, refused
from .served import Named, Receive, Scope, Send, Served, headers_of


def make_pages(served: Served, endpoints: Mapping[str, Any]) -> Starlette:
    """Return the application of the pages.

    endpoints: the ASGI applications of the POST routes, by their paths, which it lists in its errors.
    """
    paths = [Path(path, endpoint, methods=["POST"]) for path, endpoint in endpoints.items()]
    # /health and /metrics need no key, as the programs that call them have none.
    for path, answer in (("/health", _health), ("/ping", _health), ("/", _health), ("/metrics", _metrics),
                         ("/info", _info), ("/v1/models", _models), ("/models", _models),
                         ("/tokenizer_info", _tokenizer_info),
                         ("/v1/models/{name:path}", _model)):
        paths.append(Path(path, Page(served, answer, needs_no_key=answer in (_health, _metrics)), methods=["GET"]))
    refuse: Any = partial(_refuse_path, served, [*endpoints])
    app = Starlette(routes=paths, exception_handlers={HTTPException: refuse})
    app.router.redirect_slashes = False
    return app


class Page:
    """An ASGI application that answers GET with the result of a function."""

    def __init__(self, served: Served, answer: Callable[[Served, Scope], Response], needs_no_key: bool):
        """answer: returns the page, or raises `Refusal`. needs_no_key: whether the page needs no key."""
        self._served, self._answer, self._needs_no_key = served, answer, needs_no_key

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, in TEI's form of errors for the pages of TEI."""
        headers = headers_of(scope)
        request_id, form = self._served.id_of(headers), TEI if self._answer in (_info, _health) else OPENAI
        try:
            if not self._needs_no_key:
                self._served.owner(headers)     # raises `Refusal` for an unknown key
            response = self._answer(self._served, scope)
            response.headers["x-request-id"] = request_id
        except Refusal as refusal:
            response = _refused_page(self._served, form, refusal, request_id)
        await response(scope, receive, send)


def _refused_page(served: Served, form: ErrorForm, refusal: Refusal, request_id: str) -> Response:
    """Count a refusal in the metrics, and return the error as a response with the id of the request."""
    served.metrics.refuse(refusal.reason)
    status, headers, body = refused(form, refusal, request_id)
    return _response(status, [*headers, (b"x-request-id", request_id.encode())], body)


def _response(status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> Response:
    return Response(body, status, {name.decode(): value.decode() for name, value in headers})


def _json(value: Any) -> Response:
    return _response(200, [JSON], orjson.dumps(value))


def _refuse_path(served: Served, paths: Sequence[str], request: Request, error: HTTPException) -> Response:
    """Return the error for an unknown path or a wrong method. paths: of the POST routes, for the message."""
    reason = "method" if error.status_code == 405 else "path"
    fault = f"this path does not take {request.method[:20]}" if reason == "method" else "there is no such path here"
    refusal = Refusal(reason, f"{fault}; POST goes to {', '.join(paths)}")
    response = _refused_page(served, OPENAI, refusal, served.id_of(headers_of(request.scope)))
    response.headers.update(error.headers or {})        # Allow, for a wrong method
    return response


def _health(served: Served, scope: Scope) -> Response:
    """Return 200 with no body: each service computed a batch when it started, so it works.

    Raises `Refusal` (503) when the server stops, and when a file of the model has changed.
    """
    if served.closing:
        raise Refusal("closing", "the server stops, and takes no more requests")
    served.files.check()
    return Response(b"")


def _metrics(served: Served, scope: Scope) -> Response:
    return Response(served.numbers(), headers={"content-type": CONTENT_TYPE.decode()})


def _models(served: Served, scope: Scope) -> Response:
    """Return OpenAI's list of all models, one object for each name."""
    return _json({"object": "list", "data": [_model_of(served, model, name) for model in served.models
                                             for name in model.names]})


def _model(served: Served, scope: Scope) -> Response:
    """Return OpenAI's object of the model that the path names; raises `Refusal` for an unknown name."""
    name = scope["path_params"]["name"]
    model = served.named(name)
    return _json(_model_of(served, model, name if name in model.names else model.names[0]))      # never a silent name


def _model_of(served: Served, model: Named, name: str) -> dict[str, Any]:
    """Return OpenAI's object of a model, with vLLM's and other fields for the length of its context, in tokens."""
    longest = model.service.longest
    return {"id": name, "object": "model", "created": served.created, "owned_by": "encoder-engine",
            "max_input_length": longest, "max_model_len": longest, "kind": model.service.kind}


def _tokenizer_info(served: Served, scope: Scope) -> Response:
    """Return vLLM's /tokenizer_info for the first model that writes texts: its special tokens and chat template."""
    service = served.named(name=None, tasks=("generate",)).service
    if "generate" not in service.tasks or service.model.text is None:
        raise Refusal("unsupported", f"/tokenizer_info needs a model that writes texts, and {service.serves}")
    chat, end = service.model.text.chat or ChatConfig(), service.model.generation.eos_token_id
    ends = {"eos_token": service.model.tokenizer.token(end[0])} if end else {}
    return _json({"eos_token": None, "bos_token": None} | ends | chat.special_tokens | {
        "chat_template": chat.templates.get(DEFAULT), "model_max_length": service.longest})


def _info(served: Served, scope: Scope) -> Response:
    """Return TEI's /info for the first model, with None for what this server has not, and some fields of ours."""
    model, settings = served.service.model, served.settings
    labels = [] if not hasattr(model, "heads") else getattr(model.heads.get("classify"), "labels", None) or []
    classes = {"id2label": {str(i): label for i, label in enumerate(labels)},
               "label2id": {label: i for i, label in enumerate(labels)}}
    tasks = served.service.tasks
    if "rank" in tasks:     # TEI's model_type is an object with one key
        kind: dict[str, Any] = {"reranker": classes}
    elif served.service.kind == "generate":
        kind = {"generator": {"fingerprint": served.service.fingerprint}}
    elif served.service.kind == "transcribe":
        kind = {"transcriber": {"languages": model.languages}}
    elif "classify" in model.heads:
        kind = {"classifier": classes}
    else:
        kind = {"embedding": {"pooling": "+".join(model.text.pooling) if model.text is not None else ""}}
    return _json({"model_id": settings.names[-1], "model_sha": None, "model_dtype": model.precision,
                  "served_model_name": settings.names[0], "model_type": kind, "max_concurrent_requests": None,
                  "max_input_length": served.service.longest, "max_batch_tokens": settings.max_batch_tokens,
                  "max_batch_requests": None, "max_client_batch_size": None, "auto_truncate": True,
                  "tokenization_workers": model.threads, "version": __version__, "sha": None, "docker_label": None,
                  "payload_limit": settings.max_body, "max_wait": settings.max_wait, "timeout": settings.timeout,
                  "tasks": sorted(tasks), "backend": model.backend,
                  "prompts": sorted(model.text.prompts) if model.text is not None else []})
