"""Imports among the modules of adapter/ go one way, and vLLM enters through one file."""

import ast
from functools import cache
from pathlib import Path

import pytest

import adapter

FOLDER = Path(adapter.__file__).parent
VLLM_DOOR = "vllm_api"

# Leaves first: a module imports only from those above it, in functions and for types too.
ORDER = [
    "errors",
    "vllm_version",
    "settings",
    "vllm_api",
    "default_model",
    "serve",
    "contract",
    "metrics",
    "contract_answer",
    "openapi",
    "guided.constraint",
    "guided.jobs",
    "guided.pattern",
    "guided.grammar_text",
    "guided.schema",
    "guided.narrowing",
    "guided.validation",
    "guided.program",
    "guided.vocabulary",
    "guided.matcher",
    "guided.token_runs",
    "guided.blanks",
    "guided.guidance",
    "guided.xgrammar",
    "guided.outlines",
    "guided.lm_format_enforcer_regex",
    "guided.lm_format_enforcer_shapes",
    "guided.lm_format_enforcer_json",
    "guided.lm_format_enforcer",
    "guided.libraries",
    "guided.plan",
    "guided.workshop",
    "guided.admission",
    "guided.compiled",
    "guided.engine_routing",
    "cpu_seeds",
    "engine_plugin",
    "engine_io",
    "inbox",
    "outbox",
    "guided.finished",
    "infill",
    "beam_search",
    "translate",
    "respond",
    "sse",
    "token_text",
    "beam_run",
    "request_log",
    "engine",
    "routes",
    "plugin",
]

# What their tests need no vLLM for.
PURE = [
    "errors",
    "contract",
    "metrics",
    "contract_answer",
    "engine_io",
    "inbox",
    "outbox",
    "infill",
    "beam_search",
    "translate",
    "respond",
    "sse",
    "settings",
    "vllm_version",
    "openapi",
    "guided.constraint",
    "guided.jobs",
    "guided.pattern",
    "guided.grammar_text",
    "guided.schema",
    "guided.validation",
    "guided.program",
    "guided.matcher",
    "guided.plan",
    "guided.workshop",
    "guided.admission",
    "guided.finished",
]


@cache
def imports(module: str) -> frozenset[str]:
    """The dotted names that a module imports anywhere: in functions, under TYPE_CHECKING."""
    names: set[str] = set()
    path = FOLDER.joinpath(*module.split(".")).with_suffix(".py")
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"adapter/{module}.py: a relative import"
            source = node.module or ""
            names |= {source, *(f"{source}.{alias.name}" for alias in node.names)}
    return frozenset(names)


def own_imports(module: str) -> set[str]:
    """The modules of adapter/ that a module imports."""
    own = {name.removeprefix("adapter.") for name in imports(module) if name.startswith("adapter.")}
    return own & set(modules())


def modules() -> list[str]:
    """Dotted, below adapter/."""
    paths = (path.relative_to(FOLDER).with_suffix("") for path in FOLDER.rglob("*.py"))
    return sorted(".".join(path.parts) for path in paths if path.name != "__init__")


def reached_from(module: str) -> set[str]:
    """All modules that a module's import brings with it."""
    reached: set[str] = set()
    waiting = [module]
    while waiting:
        new = own_imports(waiting.pop()) - reached
        reached |= new
        waiting += new
    return reached


def test_order_lists_every_module() -> None:
    """The list of modules is complete, and each is in it once."""
    assert sorted(ORDER) == modules()


@pytest.mark.parametrize("module", modules())
def test_imports_go_one_way(module: str) -> None:
    """A module imports only from modules before it in the list, so there is no cycle."""
    later = own_imports(module) - set(ORDER[: ORDER.index(module)])
    assert later == set(), f"adapter/{module}.py imports what stands below it in ORDER"


@pytest.mark.parametrize("module", modules())
def test_vllm_is_imported_in_one_file(module: str) -> None:
    """Nothing but adapter/vllm_api.py imports vLLM."""
    direct = {name for name in imports(module) if name.split(".")[0] == "vllm"}
    assert bool(direct) == (module == VLLM_DOOR), f"adapter/{module}.py imports {direct}"


@pytest.mark.parametrize("module", PURE)
def test_pure_module_does_without_vllm(module: str) -> None:
    """A pure module reaches vLLM by no chain of imports."""
    assert VLLM_DOOR not in reached_from(module)
