"""The errors of requests: each has its HTTP status and a code.

The messages are for display: what was got, what was expected, what to do next.
"""

from __future__ import annotations

from typing import ClassVar

from ...core.errors import NystraError


class ServiceError(NystraError):
    """A request that gets no answer.

    Attributes:
        status: Of HTTP.
        code: A word for machines.
        retry_after: Seconds after which to try again, or None if that would not help.
    """

    status: ClassVar[int] = 422
    code: ClassVar[str] = "invalid"

    def __init__(self, message: str, *, retry_after: int | None = None) -> None:
        """Take the message."""
        super().__init__(message)
        self.retry_after = retry_after


class BadRequestError(ServiceError):
    """What was sent is not an image, or no request."""

    status, code = 400, "bad_request"


class UnauthorizedError(ServiceError):
    """The token is missing or another."""

    status, code = 401, "unauthorized"


class ForeignOriginError(ServiceError):
    """Another web page sent it."""

    status, code = 403, "foreign_origin"


class NotFoundError(ServiceError):
    """There is nothing at this address."""

    status, code = 404, "not_found"


class UnknownModelError(ServiceError):
    """No model of that name is served."""

    status, code = 404, "unknown_model"


class WrongMethodError(ServiceError):
    """The address is asked in another way."""

    status, code = 405, "wrong_method"


class UploadStoppedError(ServiceError):
    """What was announced did not come in time."""

    status, code = 408, "upload_stopped"


class TooLargeError(ServiceError):
    """More bytes, pixels or memory than this service takes."""

    status, code = 413, "too_large"


class UnknownHostError(ServiceError):
    """It is addressed to another name than this service has."""

    status, code = 421, "unknown_host"


class BusyError(ServiceError):
    """The queue is full."""

    status, code = 429, "busy"


class GoneError(ServiceError):
    """The client went away: nobody reads this."""

    status, code = 499, "client_gone"


class ModelFailedError(ServiceError):
    """The model could not be run, or gave nonsense: no fault of the request."""

    status, code = 500, "model_failed"


class StoppingError(ServiceError):
    """The service is about to end."""

    status, code = 503, "stopping"


class CrowdedError(ServiceError):
    """More connections are open than there may be."""

    status, code = 503, "crowded"


class TimedOutError(ServiceError):
    """The answer took longer than it may."""

    status, code = 504, "timed_out"
