"""HTTP responses."""

from __future__ import annotations

from collections.abc import AsyncIterator

from fastapi.responses import JSONResponse, Response, StreamingResponse

from ....core.errors import NystraError
from ....core.option import spell_names
from ....core.plain_text import printable
from ...tasks.handler import Answer
from ..errors import ServiceError

_PIECE = 1 << 18
"""Bytes per chunk of a response, so the most that a slow client keeps in memory."""

_LONGEST = 1000
"""Characters of the message of an error."""


def response_for(answer: Answer) -> Response:
    """Return the response for an answer, with its notes as headers such as ``X-Nystra-Tiles``."""
    headers = {f"X-Nystra-{name.title()}": _header(text) for name, text in answer.notes.items()}
    headers["Content-Length"] = str(len(answer.content))
    return StreamingResponse(_pieces(answer.content), 200, headers, answer.media_type)


def error_response(error: NystraError) -> Response:
    """Return an error as JSON; an error other than `ServiceError` has the status 422."""
    refusal = error if isinstance(error, ServiceError) else ServiceError(str(error))
    text = printable(str(refusal)[:_LONGEST])  # clients print it
    message = spell_names(text, lambda name: name)  # parameters of the query
    content = {"error": {"code": refusal.code, "message": message}}
    headers = {}
    if refusal.retry_after is not None:
        headers["Retry-After"] = str(refusal.retry_after)
    if refusal.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return JSONResponse(content, refusal.status, headers)


async def _pieces(content: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(content), _PIECE):
        yield content[start : start + _PIECE]


def _header(text: str) -> str:
    return " ".join(text.split()).encode("ascii", "replace").decode("ascii")
