"""The pages of a server, which Starlette answers: health, metrics, the model; and the errors of paths and methods."""

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
    """Return the application of the pages, which knows the paths of all endpoints.

    endpoints: the ASGI applications of the routes, by their paths.
    """
    paths = [Path(path, endpoint, methods=["POST"]) for path, endpoint in endpoints.items()]
    for path, answer in (("/health", _health), ("/ping", _health), ("/", _health), ("/metrics", _metrics),
                         ("/info", _info), ("/v1/models", _models), ("/models", _models),
                         ("/tokenizer_info", _tokenizer_info),
                         ("/v1/models/{name:path}", _model)):
        paths.append(Path(path, Page(served, answer, is_open=answer in (_health, _metrics)), methods=["GET"]))
    refuse: Any = partial(_refuse_path, served, [*endpoints])
    app = Starlette(routes=paths, exception_handlers={HTTPException: refuse})
    app.router.redirect_slashes = False
    return app


class Page:
    """Answers GET with what a function makes of the server, as an ASGI application."""

    def __init__(self, served: Served, answer: Callable[[Served, Scope], Response], is_open: bool):
        """is_open: whether the page needs no key."""
        self._served, self._answer, self._is_open = served, answer, is_open

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = headers_of(scope)
        request_id, form = self._served.id_of(headers), TEI if self._answer in (_info, _health) else OPENAI
        try:
            if not self._is_open:
                self._served.owner(headers)
            response = self._answer(self._served, scope)
            response.headers["x-request-id"] = request_id
        except Refusal as refusal:
            response = _refused_page(self._served, form, refusal, request_id)
        await response(scope, receive, send)


def _refused_page(served: Served, form: ErrorForm, refusal: Refusal, request_id: str) -> Response:
    """Count a refusal, and return the answer that says why, with the id of the request in its headers."""
    served.metrics.refuse(refusal.reason)
    status, headers, body = refused(form, refusal, request_id)
    return _response(status, [*headers, (b"x-request-id", request_id.encode())], body)


def _response(status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> Response:
    return Response(body, status, {name.decode(): value.decode() for name, value in headers})


def _json(value: Any) -> Response:
    return _response(200, [JSON], orjson.dumps(value))


def _refuse_path(served: Served, paths: Sequence[str], request: Request, error: HTTPException) -> Response:
    """Answer a path or a method that there is not. paths: those of all routes."""
    reason = "method" if error.status_code == 405 else "path"
    what = f"this path does not take {request.method[:20]}" if reason == "method" else "there is no such path here"
    refusal = Refusal(reason, f"{what}; POST goes to {', '.join(paths)}")
    response = _refused_page(served, OPENAI, refusal, served.id_of(headers_of(request.scope)))
    response.headers.update(error.headers or {})
    return response


def _health(served: Served, scope: Scope) -> Response:
    """Return 200: the service computed a batch when it was made.

    A server that stops is not healthy, nor is one whose model has changed.
    """
    if served.closing:
        raise Refusal("closing", "the server stops, and takes no more requests")
    served.files.check()
    return Response(b"")


def _metrics(served: Served, scope: Scope) -> Response:
    return Response(served.numbers(), headers={"content-type": CONTENT_TYPE.decode()})


def _models(served: Served, scope: Scope) -> Response:
    return _json({"object": "list", "data": [_model_of(served, each, name) for each in served.models
                                             for name in each.names]})


def _model(served: Served, scope: Scope) -> Response:
    name = scope["path_params"]["name"]
    found = served.named(name)
    return _json(_model_of(served, found, name if name in found.names else found.names[0]))


def _model_of(served: Served, model: Named, name: str) -> dict[str, Any]:
    """Return what OpenAI says of a model, with the names that vLLM and others have for the length of its context."""
    longest = model.service.longest
    return {"id": name, "object": "model", "created": served.created, "owned_by": "encoder-engine",
            "max_input_length": longest, "max_model_len": longest, "kind": model.service.kind}


def _tokenizer_info(served: Served, scope: Scope) -> Response:
    """Return what vLLM says of the tokenizer of the first model that writes texts: special tokens, and the template."""
    service = served.named(None, ("generate",)).service
    if "generate" not in service.tasks or service.model.text is None:
        raise Refusal("unsupported", f"/tokenizer_info needs a model that writes texts, and {service.serves}")
    chat, end = service.model.text.chat or ChatConfig(), service.model.generation.eos_token_id
    ends = {"eos_token": service.model.tokenizer.token(end[0])} if end else {}
    return _json({"eos_token": None, "bos_token": None} | ends | chat.special_tokens | {
        "chat_template": chat.templates.get(DEFAULT), "model_max_length": service.longest})


def _info(served: Served, scope: Scope) -> Response:
    """Return what TEI's /info has of this server, and the tasks of the model."""
    model, settings = served.service.model, served.settings
    labels = [] if not hasattr(model, "heads") else getattr(model.heads.get("classify"), "labels", None) or []
    classes = {"id2label": {str(i): label for i, label in enumerate(labels)},
               "label2id": {label: i for i, label in enumerate(labels)}}
    tasks = served.service.tasks
    if "rank" in tasks:
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
