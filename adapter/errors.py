"""What can go wrong with a request, each with its HTTP status and the field it names."""

from typing import Any


class ApiError(Exception):
    """An error that the caller is told about, in the OpenAI error form."""

    status = 500
    kind = "server_error"
    code: str | None = None

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.code = code or self.code

    def body(self) -> dict[str, Any]:
        """The body of the response, and of the error event of a stream."""
        return {
            "error": {
                "message": self.message,
                "type": self.kind,
                "param": self.param,
                "code": self.code,
            }
        }


class InvalidRequest(ApiError):
    """The request breaks the contract, or asks for what this server cannot do (400)."""

    status = 400
    kind = "invalid_request_error"
    code = "invalid_value"


class NotSupported(InvalidRequest):
    """A field of the contract that this server, model or backend cannot honour (400)."""

    code = "unsupported_value"


class BodyTooLarge(InvalidRequest):
    """The body is larger than can be taken, or than can be read in time (413)."""

    status = 413
    code = "body_too_large"


class EncodedBody(InvalidRequest):
    """The body is compressed, which nothing here undoes (415)."""

    status = 415
    code = "unsupported_content_encoding"


class WrongKey(ApiError):
    """No API key, or a wrong one (401)."""

    status = 401
    kind = "invalid_request_error"
    code = "invalid_api_key"


class UnknownModel(ApiError):
    """The model is not served here (404)."""

    status = 404
    kind = "invalid_request_error"
    code = "model_not_found"


class Unavailable(ApiError):
    """The engine is dead or full, or was stopped: try again later or elsewhere (503)."""

    status = 503
    code = "engine_unavailable"


class RequestTimeout(Unavailable):
    """The request took longer than the operator allows (503)."""

    code = "request_timeout"


class GenerationFailed(ApiError):
    """The engine gave up on this request (500)."""

    code = "generation_failed"


class NotSatisfied(GenerationFailed):
    """A finished text is not what its constraint asks for (500)."""

    code = "constraint_not_satisfied"


class InternalError(ApiError):
    """A fault of the server's own (500). Its details are in the server's log only."""

    code = "internal_error"

    def __init__(self) -> None:
        super().__init__("The server failed to answer this request; its log says why.")


def one_line(text: str, limit: int = 300) -> str:
    """A library's message in one line, of at most so many characters."""
    return " ".join(text.split())[:limit]
