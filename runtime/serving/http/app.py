"""The routes."""

import asyncio
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, cast, get_type_hints

from fastapi import FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse
from pydantic import BaseModel, ConfigDict, Field, create_model
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from .... import __version__
from ....core.errors import NystraError
from ....core.option_kinds import Choice
from ...tasks.handler import Answer, Handler
from ..errors import (
    BadRequestError,
    ClientDisconnectedError,
    ModelFailedError,
    NotFoundError,
    ServiceError,
    StoppingError,
    WrongMethodError,
)
from ..limits import Limits
from ..request_queue import RequestQueue, Work, out_of_time
from ..served_model import Models
from .guard import Guard
from .metrics import Metrics
from .parts import explain_data_binary, read_parts
from .responses import error_response, response_for

_PAGE = Path(__file__).with_name("page.html")
_PAGE_MAY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "connect-src 'self'; img-src blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_REFUSALS = (400, 401, 403, 404, 405, 408, 413, 421, 422, 429, 500, 503, 504)


def create_app(
    models: Models,
    queue: RequestQueue,
    limits: Limits,
    metrics: Metrics,
    **guard: Any,
) -> FastAPI:
    """Return the application.

    Args:
        models: The served models.
        queue: The request queue.
        limits: Limits of requests.
        metrics: The metrics to update.
        **guard: ``token``, ``hosts`` and ``log`` as `Guard` takes them.
    """
    app = FastAPI(
        title="nystra", version=__version__, docs_url=None, redoc_url=None, redirect_slashes=False
    )
    paths = {f"/v1/{route}" for route in models.routes} | {"/", "/v1/models", "/metrics"}

    def count(path: str, model: str, status: int) -> None:
        metrics.count_request(path if path in paths else "other", model, status)

    app.add_middleware(Guard, limits=limits, memory=queue.memory, count=count, **guard)
    app.add_exception_handler(NystraError, _refuse)
    app.add_exception_handler(HTTPException, _refuse_address)
    app.add_exception_handler(MemoryError, _refuse_for_memory)
    app.add_exception_handler(RequestValidationError, _refuse_question)

    @app.get("/healthz", summary="Whether the process is alive")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/readyz", summary="Whether requests are accepted")
    async def ready() -> Response:
        if queue.closed:
            return error_response(StoppingError("the service is stopping"))
        if not (queue.alive and all(model.alive for model in models.served)):
            return error_response(StoppingError("a thread of the service ended: restart it"))
        return JSONResponse({"status": "ok"})

    @app.get("/v1/models", summary="The models that are served")
    async def models_page() -> dict[str, Any]:
        return {"schema_version": 1, "models": describe(models)}

    @app.get("/metrics", summary="Metrics for Prometheus")
    async def figures() -> Response:
        return Response(metrics.text(), media_type=metrics.media_type)

    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        headers = {"Content-Security-Policy": _PAGE_MAY, "X-Content-Type-Options": "nosniff"}
        return FileResponse(_PAGE, headers=headers)

    for first, *_ in models.routes.values():
        _add(app, first.handler, models, queue, limits, metrics)
    return app


def describe(models: Models) -> list[dict[str, Any]]:
    """Return the served models in JSON form."""
    return [
        {
            "name": model.name,
            "route": f"/v1/{model.handler.route}",
            "task": model.session.facts.task,
            "architecture": model.session.facts.architecture,
            "license": model.session.facts.license,
            "backend": model.session.backend,
            "library": model.session.library_reason,
            **model.facts(),
        }
        for model in models.served
    ]


def _add(
    app: FastAPI,
    handler: Handler,
    models: Models,
    queue: RequestQueue,
    limits: Limits,
    metrics: Metrics,
) -> None:
    question = _query(handler)

    async def handle(request: Request, query: Annotated[question, Query()]) -> Response:  # type: ignore[valid-type]
        values: Mapping[str, Any] = dict(query)
        model = models.find(handler.route, values["model"])
        request.state.model = model.name
        options = handler.parameters(**{name: values[name] for name in values if name != "model"})
        roles = tuple(dict.fromkeys((*handler.parts, *model.facts()["parts"])))
        parts = await read_parts(request, roles, limits.max_bytes)
        begin = time.perf_counter()
        with explain_data_binary(request):
            cost = await run_in_threadpool(model.cost, parts, options)
            work = Work[Answer](lambda work: model.answer(parts, options, work), cost)
            queue.submit(work)
            answer = await _outcome(request, work, limits.timeout)
        seconds = time.perf_counter() - begin
        metrics.record_answer(
            f"/v1/{handler.route}", model.name, seconds, work.waited, answer.pixels
        )
        return response_for(answer)

    app.add_api_route(
        f"/v1/{handler.route}",
        handle,
        methods=["POST"],
        summary=handler.summary,
        response_class=Response,
        responses={
            200: {"content": {kind: {} for kind in handler.media_types}},
            **{status: {"model": _Refused} for status in _REFUSALS},
        },
        openapi_extra={"requestBody": _body(handler)},
    )


async def _outcome(request: Request, work: Work[Answer], timeout: float) -> Answer:
    """Wait for an answer until it is done, the client disconnects or the time is over."""
    answer = asyncio.ensure_future(asyncio.wrap_future(work.future))
    gone = asyncio.ensure_future(_wait_for_disconnect(request))
    # A future that nobody awaits may fail; without this asyncio would log that.
    answer.add_done_callback(lambda done: done.cancelled() or done.exception())
    try:
        first_of: set[asyncio.Future[Any]] = {answer, gone}
        await asyncio.wait(first_of, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        if answer.done():
            return answer.result()
        if gone.done():
            raise ClientDisconnectedError("the client disconnected before the response was ready")
        raise out_of_time(timeout)
    except ServiceError as refusal:
        work.cancel(refusal)
        raise
    except asyncio.CancelledError:
        work.cancel(StoppingError("the service stopped before this request was done"))
        raise
    finally:
        gone.cancel()


async def _wait_for_disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _refuse(_: Request, error: Exception) -> Response:
    return error_response(cast(NystraError, error))


async def _refuse_address(request: Request, error: Exception) -> Response:
    fault = cast(HTTPException, error)
    place = f"{request.method} {request.url.path}"
    refusals: dict[int, ServiceError] = {
        404: NotFoundError(f"no such path: {request.url.path}; see /openapi.json"),
        405: WrongMethodError(f"{place} is not supported; see /openapi.json"),
    }
    response = error_response(refusals.get(fault.status_code) or BadRequestError(str(fault.detail)))
    response.headers.update(fault.headers or {})
    return response


async def _refuse_for_memory(_: Request, error: Exception) -> Response:
    return error_response(
        ModelFailedError("not enough memory for this request: send a smaller image")
    )


async def _refuse_question(_: Request, error: Exception) -> Response:
    faults = cast(RequestValidationError, error).errors()
    problems = (f"{fault['loc'][-1]}: {fault['msg']}" for fault in faults)
    return error_response(ServiceError("; ".join(problems)))


class _Problem(BaseModel):
    code: str
    message: str


class _Refused(BaseModel):
    error: _Problem


def _query(handler: Handler) -> type[BaseModel]:
    hints = get_type_hints(handler.parameters)
    named: dict[str, Any] = {
        "model": (str | None, Field(None, description="name of the model (default: the first)"))
    }
    for name, kind in handler.parameters.list_options().items():
        hint = Literal[kind.choices] | None if isinstance(kind, Choice) else hints[name]
        named[name] = (hint, Field(kind.default, description=kind.help))
    config = ConfigDict(extra="forbid")
    parsed: type[BaseModel] = create_model(handler.parameters.__name__, __config__=config, **named)
    return parsed


def _body(handler: Handler) -> dict[str, Any]:
    file = {"type": "string", "format": "binary"}
    form = {
        "type": "object",
        "required": [handler.parts[0]],
        "properties": dict.fromkeys(handler.parts, file),
    }
    return {
        "required": True,
        "content": {"multipart/form-data": {"schema": form}, "image/*": {"schema": file}},
    }
