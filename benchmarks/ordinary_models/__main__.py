"""The program: `python -m benchmarks.ordinary_models`."""

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import fields

from adapter.builtin_model.model import MODEL_NAME, ensure_default_model
from adapter.guided.constraint import AUTO, BACKENDS
from adapter.settings import Settings
from benchmarks.guided_conformance.__main__ import listed, tiny_vocabulary
from benchmarks.ordinary_models.asking import DEFAULT, NO_RETRIES, Asking, sample
from benchmarks.ordinary_models.counts import Count
from benchmarks.ordinary_models.results import UNITS, figures, is_bad, sections
from benchmarks.ordinary_models.shape import Shape
from benchmarks.ordinary_models.shapes import all_shapes
from benchmarks.ordinary_models.walking import Walks
from benchmarks.reporting.result import Result
from benchmarks.running import program
from benchmarks.running.server import running_server

FLAGS = ["--enforce-eager"]
RETRIES = "--guided-retries"
TEXTS, QUICK_TEXTS = 40, 4
DRAWS, QUICK_DRAWS = 12, 4
QUICK_SHAPES = 6


def main(argv: Sequence[str] | None = None) -> int:
    """Ask, or walk, and print; 1 where a text broke its schema unnoticed, or could not go on."""
    return program.run(_benchmark, _parse(argv), sections)


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = program.parser("ordinary_models", "Whether the schemas of ordinary models are held.")
    parser.add_argument("--walk", action="store_true", help="through the masks alone, no engine")
    parser.add_argument("--backends", type=listed(BACKENDS), default=[AUTO], help="auto")
    parser.add_argument("--shapes", type=int, metavar="N", help="only so many, from all over")
    parser.add_argument("--only", metavar="WORDS", help="shapes with these words in their names")
    parser.add_argument(
        "--texts", type=int, help="of each shape: at each temperature (40), or walks (12)"
    )
    parser.add_argument("--seed", type=int, default=0, help="the first of the seeds")
    return parser.parse_args(argv)


def _benchmark(options: argparse.Namespace) -> Result:
    limit = options.shapes or (QUICK_SHAPES if options.quick else None)
    named = [shape for shape in all_shapes() if (options.only or "") in shape.name]
    shapes = sample(named, limit)
    left_out: dict[str, str] = {}
    counts = _walked(options, shapes) if options.walk else _asked(options, shapes, left_out)
    values = figures(counts)
    record = {"counts": [count.record() for count in counts], "left_out": left_out}
    failure = "a text broke its schema, or came to a dead end" if is_bad(values) else ""
    return Result(values, record, UNITS, failure=failure)


def _walked(options: argparse.Namespace, shapes: Sequence[Shape]) -> list[Count]:
    draws = options.texts or (QUICK_DRAWS if options.quick else DRAWS)
    walks = Walks(tiny_vocabulary(), options.seed)
    try:
        return list(_shown(walks.shapes(shapes, options.backends, draws), options, shapes))
    finally:
        walks.close()


def _shown(
    counts: Iterator[Count], options: argparse.Namespace, shapes: Sequence[Shape]
) -> Iterator[Count]:
    with program.progress_bar(len(shapes) * len(options.backends), "shapes") as bar:
        for count in counts:
            yield count
            bar.update()


def _asked(
    options: argparse.Namespace, shapes: Sequence[Shape], left_out: dict[str, str]
) -> list[Count]:
    """Of one server as it is, and of one that makes no text again."""
    ways = {DEFAULT: FLAGS, NO_RETRIES: [*FLAGS, RETRIES, "0"]}
    if RETRIES not in {setting.metadata["flag"].name for setting in fields(Settings)}:
        left_out[NO_RETRIES] = f"this server has no {RETRIES}: it makes no text again"
        del ways[NO_RETRIES]
    folder = ensure_default_model()
    texts = options.texts or (QUICK_TEXTS if options.quick else TEXTS)
    counts: list[Count] = []
    for way, flags in ways.items():
        with running_server(folder, MODEL_NAME, flags) as server:
            asking = Asking(server, way, texts, options.seed)
            asked = (
                asking.shape(shape, name, base=way == DEFAULT)
                for shape in shapes
                for name in options.backends
            )
            counts += _shown(asked, options, shapes)
    return counts


if __name__ == "__main__":
    sys.exit(main())
