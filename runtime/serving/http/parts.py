"""The images of a request: the body itself, or the parts of a form."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from starlette.datastructures import FormData, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect, Request

from ..errors import BadRequestError, ClientDisconnectedError

_FORM = "multipart/form-data"
_TEXT_FORM = "application/x-www-form-urlencoded"

# Its messages about damaged forms go to the client; without a handler they also go to stderr.
logging.getLogger("python_multipart").addHandler(logging.NullHandler())


@contextmanager
def explain_data_binary(request: Request) -> Iterator[None]:
    """Add to an error about the body what it is likely to be: the body of ``curl -d``.

    Raises:
        BadRequestError: The same, if the block raises one.
    """
    try:
        yield
    except BadRequestError as error:
        if request.headers.get("content-type", "").startswith(_TEXT_FORM):
            raise BadRequestError(
                f"{error}. curl -d leaves line breaks out of a file: use curl --data-binary "
                "@photo.png"
            ) from error
        raise


async def read_parts(request: Request, roles: tuple[str, ...], max_bytes: int) -> dict[str, bytes]:
    """Return the images of a request, the first role's first.

    Args:
        request: A form with a part an image, or a body that is the image.
        roles: Accepted names of parts; the first is required.
        max_bytes: Limit of the bytes of a body, which stays in memory.

    Raises:
        BadRequestError: A part is missing, repeated or unknown; the form is damaged.
        ClientDisconnectedError: The client disconnected during the upload.
    """
    try:
        if not request.headers.get("content-type", "").startswith(_FORM):
            parts = {roles[0]: await request.body()}
        else:
            parts = await _parts(request, roles, max_bytes)
    except ClientDisconnect as error:
        raise ClientDisconnectedError("the client disconnected during the upload") from error
    missing = not parts.get(roles[0])
    if missing:
        raise BadRequestError(
            f"the request holds no {roles[0]}: send an image file as the body, or as the part "
            f"{roles[0]!r} of a form (curl -F {roles[0]}=@photo.png)"
        )
    return {role: parts[role] for role in roles if role in parts}


async def _parts(request: Request, roles: tuple[str, ...], max_bytes: int) -> dict[str, bytes]:
    parser = MultiPartParser(request.headers, request.stream(), max_files=8, max_fields=8)
    parser.spool_max_size = max_bytes
    try:
        form = await parser.parse()
    except MultiPartException as error:
        raise BadRequestError(f"the form is damaged: {error.message}") from error
    try:
        return await _files(form, roles)
    finally:
        await form.close()


async def _files(form: FormData, roles: tuple[str, ...]) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    for role, part in form.multi_items():
        if role not in roles or role in files:
            raise BadRequestError(
                f"got the part {role!r}{' twice' if role in files else ''}, expected files "
                f"called {', '.join(roles)}, each once; parameters belong in the query "
                "(?tile=128)"
            )
        if not isinstance(part, UploadFile):
            raise BadRequestError(
                f"the part {role!r} is a text without the name of a file, expected a file: curl "
                f"takes -F {role}=@photo.png, with the @"
            )
        files[role] = await part.read()
    return files
