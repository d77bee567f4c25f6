"""Imports in adapter/ go one way, as docs/architecture.md lists the layers; vLLM has one door."""

import ast
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

import adapter

FOLDER = Path(adapter.__file__).parent
DOCS = FOLDER.parent / "docs" / "architecture.md"
VLLM_DOOR = "vllm_api"
_OWN_NAME = re.compile(r"adapter(?:\.\w+)+")

MOST_LINES = 450
"""Of a module."""
MOST_OF_ALL = 1 / 3
"""Of all lines of adapter/, in one folder."""


class Layer(NamedTuple):
    """A row of the table of layers."""

    name: str
    """A module of adapter/, or a folder, with a slash behind it: its files, not its folders'."""
    with_vllm: frozenset[str]
    """Those of its modules that bring vLLM with them."""


@cache
def layers() -> tuple[Layer, ...]:
    """The layers, from the first that may be imported by all others on."""
    table = DOCS.read_text("utf-8").partition("<!-- layers -->")[2].partition("<!-- end -->")[0]
    rows = re.findall(r"^\| `([\w/]+)` \|[^|]*\| ?([^|]*?) ?\|$", table, re.MULTILINE)
    return tuple(Layer(name, frozenset(re.findall(r"`(\w+)`", cell))) for name, cell in rows)


@cache
def modules() -> tuple[str, ...]:
    """Dotted, below adapter/."""
    paths = (path.relative_to(FOLDER).with_suffix("") for path in FOLDER.rglob("*.py"))
    return tuple(sorted(".".join(path.parts) for path in paths if path.name != "__init__"))


def source(module: str) -> str:
    return FOLDER.joinpath(*module.split(".")).with_suffix(".py").read_text("utf-8")


def layer_of(module: str) -> str:
    """The row that a module belongs to."""
    folder, _, _ = module.rpartition(".")
    return f"{folder.replace('.', '/')}/" if folder else module


@cache
def imports(module: str) -> frozenset[str]:
    """The dotted names that a module imports anywhere: in functions, for types, and as strings."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source(module))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"adapter/{module}.py: a relative import"
            origin = node.module or ""
            names |= {origin, *(f"{origin}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Constant) and _OWN_NAME.fullmatch(str(node.value)):
            names.add(str(node.value))  # import_module(), or python -m
    return frozenset(names)


@cache
def own_imports(module: str) -> frozenset[str]:
    """The modules of adapter/ that a module imports."""
    own = {name.removeprefix("adapter.") for name in imports(module) if name.startswith("adapter.")}
    return frozenset(own & {*modules()})


def reached_from(module: str) -> set[str]:
    """All modules that a module's import brings with it."""
    reached: set[str] = set()
    waiting = [module]
    while waiting:
        new = own_imports(waiting.pop()) - reached
        reached |= new
        waiting += new
    return reached


def test_every_module_has_a_layer() -> None:
    """The table has each layer once, none too many, and strings that name modules are seen."""
    names = [layer.name for layer in layers()]
    assert sorted(names) == sorted({layer_of(module) for module in modules()})
    assert "guided.backends.xgrammar" in own_imports("guided.backends.registry")


@pytest.mark.parametrize("module", modules())
def test_imports_go_one_way(module: str) -> None:
    """A module imports only from layers before its own, or from its own without a circle."""
    order = [layer.name for layer in layers()]
    own = order.index(layer_of(module))
    later = {name for name in own_imports(module) if order.index(layer_of(name)) > own}
    assert later == set(), f"adapter/{module}.py imports from a layer below its own"
    assert module not in reached_from(module), f"adapter/{module}.py imports itself in a circle"


@pytest.mark.parametrize("module", modules())
def test_vllm_is_imported_in_one_file(module: str) -> None:
    """Nothing but adapter/vllm_api.py imports vLLM."""
    direct = {name for name in imports(module) if name.split(".")[0] == "vllm"}
    assert bool(direct) == (module == VLLM_DOOR), f"adapter/{module}.py imports {direct}"


@pytest.mark.parametrize("layer", layers(), ids=lambda layer: layer.name)
def test_the_table_says_what_needs_vllm(layer: Layer) -> None:
    """A layer's modules reach vLLM where the table says so, and nowhere else."""
    own = [module for module in modules() if layer_of(module) == layer.name]
    found = {m.split(".")[-1] for m in own if m == VLLM_DOOR or VLLM_DOOR in reached_from(m)}
    assert found == layer.with_vllm


def test_no_module_is_long() -> None:
    """Each module is one thing."""
    lines = {module: source(module).count("\n") for module in modules()}
    assert {module: count for module, count in lines.items() if count > MOST_LINES} == {}


def test_no_folder_holds_most_of_the_code() -> None:
    """Every folder, with the folders in it, has its share of all lines and no more."""
    lines = {module: source(module).count("\n") for module in modules()}
    folders = {module.split(".")[0] for module in modules() if "." in module}
    most = sum(lines.values()) * MOST_OF_ALL
    shares = {f: sum(n for m, n in lines.items() if m.startswith(f"{f}.")) for f in folders}
    assert {folder: count for folder, count in shares.items() if count > most} == {}
