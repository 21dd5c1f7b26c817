"""The errors of requests: each has its HTTP status and a code.

The messages are for display: the value that was got, the expected one, and what to do.
"""

from __future__ import annotations

from typing import ClassVar

from ...core.errors import NystraError


class ServiceError(NystraError):
    """A request that fails.

    Attributes:
        status: HTTP status.
        code: Error code for programs.
        retry_after: Seconds after which to try again, or None if that would not help.
    """

    status: ClassVar[int] = 422
    code: ClassVar[str] = "invalid"

    def __init__(self, message: str, *, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class BadRequestError(ServiceError):
    """The content is not an image, or the request is malformed."""

    status, code = 400, "bad_request"


class UnauthorizedError(ServiceError):
    """The token is missing or wrong."""

    status, code = 401, "unauthorized"


class ForeignOriginError(ServiceError):
    """A web page of another origin sent the request."""

    status, code = 403, "foreign_origin"


class NotFoundError(ServiceError):
    """The path does not exist."""

    status, code = 404, "not_found"


class UnknownModelError(ServiceError):
    """No model of that name is served."""

    status, code = 404, "unknown_model"


class WrongMethodError(ServiceError):
    """The path does not support this HTTP method."""

    status, code = 405, "wrong_method"


class UploadStoppedError(ServiceError):
    """The upload did not complete in time."""

    status, code = 408, "upload_stopped"


class TooLargeError(ServiceError):
    """More bytes, pixels or memory than this service accepts."""

    status, code = 413, "too_large"


class UnknownHostError(ServiceError):
    """The host name of the request is not accepted."""

    status, code = 421, "unknown_host"


class BusyError(ServiceError):
    """The queue is full."""

    status, code = 429, "busy"


class ClientDisconnectedError(ServiceError):
    """The client disconnected; nobody receives this response."""

    status, code = 499, "client_gone"


class ModelFailedError(ServiceError):
    """The model failed or returned an invalid output; the request was correct."""

    status, code = 500, "model_failed"


class StoppingError(ServiceError):
    """The service is stopping."""

    status, code = 503, "stopping"


class TimedOutError(ServiceError):
    """The response took longer than the limit."""

    status, code = 504, "timed_out"
