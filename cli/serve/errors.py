"""What a client is told of an error: `{"error": {"message", "type", "code"}}` and a status."""

import logging
from collections.abc import Mapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse

from longctx.core.common.errors import (
    Locked,
    LongctxError,
    NotFound,
    StateMismatch,
    UnreadableInput,
    UsageError,
)
from longctx.core.common.foreign import is_memory

_log = logging.getLogger(__name__)

# Of the nearest class; 409 is what clients try again.
STATUS = {
    UsageError: (400, "invalid_request"),
    NotFound: (404, "not_found"),
    Locked: (409, "locked"),
    UnreadableInput: (422, "unreadable_input"),
    StateMismatch: (500, "state_mismatch"),
    LongctxError: (500, "failed"),
}
TYPES = {400: "invalid_request_error", 401: "authentication_error", 403: "permission_error"}
TYPES |= {404: "not_found_error", 429: "rate_limit_error"}


class Refused(Exception):
    """A request that is not answered.

    Args:
        status: of HTTP.
        message: what is wrong and what to do, for people.
        code: the same for programs.
        param: the field of the request that is wrong.
        headers: of the response.
    """

    def __init__(
        self,
        status: int,
        message: str,
        code: str,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
    ):
        super().__init__(message)
        self.status, self.code, self.param = status, code, param
        self.headers = dict(headers or {})


def refusal(error: Exception) -> Refused:
    """Any error as what the client is told of it; nothing of a fault's inside is in it."""
    if isinstance(error, Refused):
        return error
    if isinstance(error, HTTPException):
        code = "not_found" if error.status_code == 404 else "refused"
        return Refused(error.status_code, error.detail, code, headers=error.headers)
    for kind, (status, code) in STATUS.items():
        if isinstance(error, kind):
            return Refused(status, str(error), code)
    if is_memory(error):
        return Refused(503, "out of memory", "out_of_memory")
    _log.error("a request failed", exc_info=error)
    return Refused(500, f"internal error: {type(error).__name__}", "internal_error")


def as_dict(refused: Refused) -> dict[str, Any]:
    """The JSON object of an error."""
    server = "server_error" if refused.status >= 500 else "invalid_request_error"
    kind = TYPES.get(refused.status, server)
    told = {"message": str(refused), "type": kind, "code": refused.code, "param": refused.param}
    return {"error": told}


def response(refused: Refused) -> JSONResponse:
    """The response that tells of an error."""
    return JSONResponse(as_dict(refused), refused.status, refused.headers)


async def handle(request: Request, error: Exception) -> JSONResponse:
    """Starlette's handler of every error."""
    return response(refusal(error))
