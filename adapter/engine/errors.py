"""vLLM's errors as what the caller is told."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from adapter.errors import (
    ApiError,
    GenerationFailed,
    InternalError,
    InvalidRequest,
    Unavailable,
)
from adapter.vllm_api import (
    EngineDeadError,
    EngineFaultedError,
    GenerationError,
    GracefulHTTPError,
    VLLMClientError,
    VLLMServerError,
    logger,
)


def api_errors() -> AbstractContextManager[None]:
    """Raise vLLM's errors as what they become."""
    return _raised(as_api_error)


def engine_errors() -> AbstractContextManager[None]:
    """The same where whatever goes wrong is the engine's."""
    return _raised(as_engine_error)


@contextmanager
def _raised(as_error: Callable[[Exception], ApiError]) -> Iterator[None]:
    try:
        yield
    except ApiError:
        raise
    except Exception as error:
        raise as_error(error) from error


def as_api_error(error: Exception) -> ApiError:
    """What the caller is told of an error of vLLM's, or of our own."""
    if (why := _gone(error)) is not None:
        return Unavailable(why)
    if isinstance(error, GracefulHTTPError):
        return Unavailable(str(error), code="engine_overloaded")
    if isinstance(error, VLLMClientError):
        # Our own checks come first and name the field; this is a check that vLLM alone makes.
        parameter = getattr(error, "parameter", None)
        return InvalidRequest(str(error.args[0] if error.args else error), param=parameter)
    if isinstance(error, GenerationError) and getattr(error, "status_code", 500) == 503:
        return Unavailable(str(error))
    logger.error("A request failed in the engine", exc_info=error)
    return _failed() if isinstance(error, VLLMServerError) else InternalError()


def as_engine_error(error: Exception) -> ApiError:
    """The same of an error that came in an answer's place: whatever it is, it is the engine's."""
    mapped = as_api_error(error)
    return _failed() if isinstance(mapped, InternalError) else mapped


def _failed() -> GenerationFailed:
    return GenerationFailed("The engine failed on this request; the server's log says why.")


def _gone(error: Exception) -> str | None:
    """Why there is no engine any more, None where there is."""
    if isinstance(error, EngineDeadError):
        return "The engine is not running."
    if isinstance(error, EngineFaultedError):
        return str(error)
    # vLLM ends the renderer's threads before it lets the running requests finish.
    draining = isinstance(error, RuntimeError) and "after shutdown" in str(error)
    return "The server is shutting down." if draining else None
