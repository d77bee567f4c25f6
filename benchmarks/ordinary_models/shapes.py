"""All shapes."""

from functools import cache

from benchmarks.ordinary_models import pydantic_models, zod_models
from benchmarks.ordinary_models.shape import Shape


@cache
def all_shapes() -> tuple[Shape, ...]:
    """Those of pydantic, of zod, and those written by hand."""
    return (*pydantic_models.shapes(), *zod_models.shapes())
