"""What is measured: a server that runs, or one that is started; and what it says of itself."""

import json
import os
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.endpoint.plan import Target
from benchmarks.endpoint.workloads import Variant
from benchmarks.running.process import BenchmarkError
from benchmarks.running.server import PATHS, Route, Site, running_server

# Makes vLLM serve the route that empties its prefix cache.
_DEVELOPER_ROUTES = {"VLLM_SERVER_DEV_MODE": "1"}
# The built-in model is small, and is to start quickly.
_BUILT_IN_FLAGS = ("--enforce-eager",)


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
    with running_server(folder, name, flags, environment=_DEVELOPER_ROUTES) as server:
        command = shlex.join(["python", "-m", "adapter.serve", folder.name, *flags])
        yield replace(server.site, command=command), folder


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
