"""The plugin as it is installed, and what it adds to vLLM's application."""

from functools import partial
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import pytest
from fastapi import FastAPI

from adapter import vllm_version
from adapter.contract.wording import request_json_schema
from adapter.plugin import CompletionV2Plugin
from adapter.serve import PLUGIN

GROUPS = {
    "vllm.general_plugins": "adapter.engine_plugin:install",
    "vllm.endpoint_plugins": "adapter.plugin:CompletionV2Plugin",
}
PATH = "/v2/completions"


def installed(group: str) -> list[EntryPoint]:
    """This package's entry points of a group."""
    return [entry for entry in entry_points(group=group) if entry.value.startswith("adapter.")]


@pytest.mark.parametrize("group", GROUPS)
def test_entry_point_is_installed(group: str) -> None:
    """Both halves of the plugin are found by vLLM, under one name."""
    (entry,) = installed(group)
    assert (entry.name, entry.value) == (PLUGIN, GROUPS[group])
    assert entry.load() is not None


def test_name_is_the_plugins_own() -> None:
    """The name in VLLM_PLUGINS is the one that the plugin says it has."""
    (entry,) = installed("vllm.endpoint_plugins")
    plugin = entry.load()()
    assert plugin.name == entry.name == PLUGIN


def test_engine_half_may_be_loaded_again() -> None:
    """vLLM may load the engine half several times in a process."""
    (entry,) = installed("vllm.general_plugins")
    assert [entry.load()(), entry.load()()] == [None, None]


def test_untested_vllm_stops_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """An untested vLLM is an error of attach_router, which vLLM does not swallow."""
    monkeypatch.delenv(vllm_version.OVERRIDE, raising=False)
    monkeypatch.setattr(vllm_version, "installed", lambda: "0.31.0")
    app = FastAPI()
    with pytest.raises(vllm_version.UnsupportedVllm, match=r"0\.31\.0"):
        CompletionV2Plugin().attach_router(app)
    assert PATH not in {getattr(route, "path", None) for route in app.routes}


# --- in an application --------------------------------------------------------------------------


@pytest.fixture
def app() -> FastAPI:
    """An application with the route in it."""
    made = FastAPI()
    CompletionV2Plugin().attach_router(made)
    return made


def route_of(app: FastAPI) -> Any:
    """The application's one route of ours."""
    (route,) = [route for route in app.routes if getattr(route, "path", "") == PATH]
    return route


@pytest.mark.needs_vllm
@pytest.mark.parametrize(
    ("allowed", "loads"),
    [(None, False), ("", False), ("other", False), ("other,completion_v2", True)],
    ids=["unset", "empty", "other", "ours"],
)
def test_vllm_loads_it_where_it_is_named(
    monkeypatch: pytest.MonkeyPatch, allowed: str | None, loads: bool
) -> None:
    """vLLM loads the endpoint exactly where VLLM_PLUGINS names it."""
    from vllm.plugins import load_endpoint_plugins

    monkeypatch.delenv("VLLM_PLUGINS", raising=False)
    if allowed is not None:
        monkeypatch.setenv("VLLM_PLUGINS", allowed)
    loaded = [type(plugin).__name__ for plugin in load_endpoint_plugins(("generate",))]
    assert loaded == (["CompletionV2Plugin"] if loads else [])


@pytest.mark.needs_vllm
def test_it_fits_vllms_protocol() -> None:
    """The plugin is what vLLM's protocol asks for."""
    from vllm.plugins.endpoint_plugins.interface import EndpointPlugin

    assert isinstance(CompletionV2Plugin(), EndpointPlugin)


@pytest.mark.needs_vllm
def test_it_repairs_the_detokenizer(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the API server, where texts are made of tokens."""
    from adapter.vllm_patches import detokenizer

    repaired: list[str] = []
    for name in ("repair_detokenizer", "hold_back_less"):
        monkeypatch.setattr(detokenizer, name, partial(repaired.append, name))
    CompletionV2Plugin().attach_router(FastAPI())
    assert repaired == ["repair_detokenizer", "hold_back_less"]


@pytest.mark.needs_vllm
def test_it_adds_one_route(app: FastAPI) -> None:
    """The plugin adds POST /v2/completions and nothing else."""
    plain = {getattr(route, "path", None) for route in FastAPI().routes}
    added = [route for route in app.routes if getattr(route, "path", None) not in plain]
    assert added == [route_of(app)]
    assert route_of(app).methods == {"POST"}


@pytest.mark.needs_vllm
def test_vllm_keeps_the_route(monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM's own wiring keeps the route, once, and its endpoint."""
    from vllm.plugins.endpoint_plugins.interface import attach_endpoint_plugins

    monkeypatch.setenv("VLLM_PLUGINS", PLUGIN)
    made = FastAPI()
    attach_endpoint_plugins(made, ("generate",))
    assert type(route_of(made).app).__name__ == "CompletionsEndpoint"


def references(node: Any) -> set[str]:
    """Every $ref in a document."""
    if isinstance(node, list):
        return {ref for item in node for ref in references(item)}
    if isinstance(node, dict):
        own = {node["$ref"]} if isinstance(node.get("$ref"), str) else set()
        return own | {ref for item in node.values() for ref in references(item)}
    return set()


@pytest.mark.needs_vllm
def test_openapi_holds_the_contract(app: FastAPI) -> None:
    """/openapi.json shows the contract's fields as the schema of the route's body."""
    document = app.openapi()
    operation = document["paths"][PATH]["post"]
    body = operation["requestBody"]["content"]["application/json"]["schema"]
    assert body == {"$ref": "#/components/schemas/CompletionV2Request"}
    shown = document["components"]["schemas"]["CompletionV2Request"]
    contract = request_json_schema(ref_template="#/components/schemas/CompletionV2{model}")
    assert shown == {key: contract[key] for key in contract if key != "$defs"}
    assert {"200", "400", "401", "404", "500", "503"} <= set(operation["responses"])
    assert "text/event-stream" in operation["responses"]["200"]["content"]


@pytest.mark.needs_vllm
def test_openapi_references_resolve(app: FastAPI) -> None:
    """Every $ref in /openapi.json leads somewhere, also when it is asked for twice."""
    document = app.openapi()
    prefix = "#/components/schemas/"
    names = {ref.removeprefix(prefix) for ref in references(document)}
    assert names <= set(document["components"]["schemas"])
    assert "CompletionV2Chunk" in names
    assert app.openapi() == document


@pytest.mark.needs_vllm
def test_two_applications(app: FastAPI) -> None:
    """Loaded twice, the plugin serves two applications that share nothing."""
    other = FastAPI()
    CompletionV2Plugin().attach_router(other)
    assert route_of(app).app is not route_of(other).app
    assert other.openapi()["paths"].keys() == app.openapi()["paths"].keys()


@pytest.mark.needs_vllm
def test_flags_without_effect_are_named(serve: Any, caplog: pytest.LogCaptureFixture) -> None:
    """A flag of vLLM's own route that has no effect on ours is in the log at start, if it is on."""
    serve(enable_log_outputs=True, enable_force_include_usage=False)
    assert "--enable-log-outputs has no effect on POST /v2/completions" in caplog.text
    assert "--enable-force-include-usage" not in caplog.text
