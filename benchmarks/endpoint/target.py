"""What is measured: a server that runs, or one that is started; and what it says of itself."""

import json
import os
import shlex
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.endpoint.plan import Target
from benchmarks.endpoint.variants import PATHS, Route, Variant
from benchmarks.server import HOST, BenchmarkError, running_server

_ANSWER_SECONDS = 600.0
_RESET_SECONDS = 10.0
_RESET_PATH = "/reset_prefix_cache"
_HEALTH_PATH = "/health"
_POLL_SECONDS = 2.0

# Makes vLLM serve _RESET_PATH.
_DEVELOPER_ROUTES = {"VLLM_SERVER_DEV_MODE": "1"}
# The built-in model is small, and is to start quickly.
_BUILT_IN_FLAGS = ("--enforce-eager",)


@dataclass(frozen=True, slots=True)
class Answer:
    """To one HTTP request."""

    status: int
    headers: Mapping[str, str]
    text: str


@dataclass(frozen=True, slots=True)
class Site:
    """A server over HTTP."""

    base_url: str
    """Without a slash at its end."""
    command: str = ""
    """The command line of a server that this program started."""
    headers: Mapping[str, str] = field(default_factory=dict)

    def get(self, path: str) -> Any:
        """The JSON at a path.

        Raises:
            BenchmarkError: there is none.
        """
        answer = self._ask(urllib.request.Request(self.base_url + path))
        if answer.status != 200:
            raise BenchmarkError(f"GET {path} was answered {answer.status}: {answer.text}")
        return json.loads(answer.text)

    def post(self, path: str, body: Mapping[str, Any] | None = None) -> Answer:
        """The answer to a body of JSON."""
        data = b"" if body is None else json.dumps(body).encode()
        headers = {"content-type": "application/json"}
        return self._ask(urllib.request.Request(self.base_url + path, data, headers))

    def _ask(self, request: urllib.request.Request) -> Answer:
        for name, value in self.headers.items():
            request.add_header(name, value)
        try:
            with urllib.request.urlopen(request, timeout=_ANSWER_SECONDS) as reply:
                return Answer(reply.status, dict(reply.headers), reply.read().decode())
        except urllib.error.HTTPError as error:
            return Answer(error.code, dict(error.headers), error.read().decode(errors="replace"))
        except OSError as error:
            raise BenchmarkError(f"{self.base_url} cannot be reached: {error}") from error

    def forgets_prefixes(self) -> bool:
        """Empty the prefix cache; False where the server has no route for it.

        Raises:
            BenchmarkError: it has one, and it did not work.
        """
        deadline = time.monotonic() + _RESET_SECONDS
        while True:
            answer = self.post(_RESET_PATH)
            if answer.status in {404, 405}:
                return False
            # A route that answers with nothing has done it; a busy engine says false.
            if answer.status == 200 and (not answer.text or json.loads(answer.text)["success"]):
                return True
            if time.monotonic() > deadline:
                raise BenchmarkError(f"{_RESET_PATH}: {answer.status} {answer.text}")
            time.sleep(0.1)

    def wait(self, seconds: float) -> None:
        """Wait until the server is ready, at most so long: it may be loading its model yet.

        Raises:
            BenchmarkError: it is not, with the reason of the last try.
        """
        deadline = time.monotonic() + seconds
        while True:
            try:
                answer = self._ask(urllib.request.Request(self.base_url + _HEALTH_PATH))
                if answer.status == 200:
                    return
                reason = f"GET {_HEALTH_PATH} was answered {answer.status}"
            except BenchmarkError as error:
                reason = str(error)
            if time.monotonic() >= deadline:
                raise BenchmarkError(reason)
            time.sleep(min(_POLL_SECONDS, max(deadline - time.monotonic(), 0)))


@contextmanager
def site(
    base_url: str | None, model_folder: Path | None, server_args: str, ready_seconds: float = 0
) -> Iterator[tuple[Site, Path | None]]:
    """The server of a URL, or one started for the model of a folder (the built-in one where None).

    Gives the server, and the folder of the model where this program started it.

    ready_seconds: how long the server of a URL may take to be ready.

    Raises:
        BenchmarkError: it did not start, or is not ready.
    """
    if base_url is not None:
        known = Site(base_url.rstrip("/"), headers=_authorization())
        known.wait(ready_seconds)
        yield known, None
        return
    from adapter.builtin_model.model import MODEL_NAME, ensure_default_model

    folder = ensure_default_model() if model_folder is None else model_folder
    name = MODEL_NAME if model_folder is None else model_folder.resolve().name
    flags = [*(_BUILT_IN_FLAGS if model_folder is None else ()), *shlex.split(server_args)]
    with environment_with(_DEVELOPER_ROUTES), running_server(folder, name, flags) as server:
        command = shlex.join(["python", "-m", "adapter.serve", folder.name, *flags])
        yield Site(f"http://{HOST}:{server.port}", command), folder


def served(site: Site, folder: Path | None, model: str | None, tokenizer: str | None) -> Target:
    """What to point the benchmark at: the named model of the server, or its first one.

    Raises:
        BenchmarkError: it is not served.
    """
    entry = model_entry(site.get("/v1/models"), model)
    found = tokenizer or (str(folder) if folder else entry.get("root")) or entry["id"]
    return Target(site.base_url, entry["id"], str(found), same_prompts=site.forgets_prefixes())


def model_entry(models: Mapping[str, Any], name: str | None) -> dict[str, Any]:
    """A model's entry in the answer of GET /v1/models: the named one, or the first.

    Raises:
        BenchmarkError: there is none.
    """
    entries: list[dict[str, Any]] = models["data"]
    for entry in entries:
        if name in {None, entry["id"]}:
            return entry
    known = ", ".join(entry["id"] for entry in entries)
    raise BenchmarkError(f"The server has no model {name}; it has: {known}.")


def lack(site: Site, model: str, variant: Variant, route: Route) -> str:
    """Why a route cannot be measured with a variant, found out by a small request; "" where it can.

    The request is not streamed, and also gets a constraint compiled.
    """
    body: dict[str, Any] = {"model": model, "prompt": "A list:", "max_tokens": 4}
    if variant.logprobs is not None:
        body["logprobs"] = variant.logprobs
    if variant.temperature is not None:
        body["temperature"] = variant.temperature
    answer = site.post(PATHS[route], body | variant.body(route))
    if answer.status != 200:
        return f"the server answered {answer.status}: {_message(answer.text)}"
    ignored = {name.lower(): value for name, value in answer.headers.items()}.get(
        "x-ignored-fields"
    )
    return f"the server ignored {ignored}" if ignored else ""


def _message(text: str) -> str:
    try:
        content = json.loads(text)
        return str(content["error"]["message"] if "error" in content else content["detail"])
    except (ValueError, KeyError, TypeError):
        return text[:200]


def _authorization() -> dict[str, str]:
    key = os.environ.get("OPENAI_API_KEY")
    return {"authorization": f"Bearer {key}"} if key else {}


@contextmanager
def environment_with(variables: Mapping[str, str]) -> Iterator[None]:
    """Variables for the processes that are started within."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
