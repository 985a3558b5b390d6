"""What goes wrong with a request, in the format of OpenAI's errors."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from fastapi.responses import JSONResponse

KINDS = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}


class RequestError(Exception):
    """An answer with an error.

    status   of HTTP
    param    the field that is wrong, if one is
    code     a word for programs
    """

    def __init__(
        self,
        status: int,
        message: str,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] = {},  # noqa: B006 - never changed
    ):
        super().__init__(message)
        self.status, self.message, self.param, self.code = status, message, param, code
        self.headers = dict(headers)

    def as_json(self) -> dict[str, Any]:
        """Return OpenAI's object."""
        usual = "server_error" if self.status >= 500 else "invalid_request_error"
        kind = KINDS.get(self.status, usual)
        facts = {"message": self.message, "type": kind, "param": self.param, "code": self.code}
        return {"error": facts}

    def response(self) -> JSONResponse:
        """Make the answer."""
        return JSONResponse(self.as_json(), self.status, self.headers)


def without_paths(message: str, folder: str) -> str:
    """Replace the names of files in a folder, which only the server knows, by `file`."""
    return re.sub(rf"'?{re.escape(folder)}[^\s:']*'?", "file", message)
