"""What it is worth to llguidance that rules of an EBNF grammar become terminals.

Run: python -m benchmarks.grammar_masks [--quick] [--json FILE]

Two grammars, each put into Lark with and without the search for lexemes, walk the same text token
by token, in turn; the time of each mask is measured. Of the built-in model only the tokenizer is
needed, and no server.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from typing import Any

import numpy as np

from adapter.guided.backends.guidance import GuidanceBackend
from adapter.guided.matcher import Matcher
from adapter.guided.program import Part
from adapter.guided.vocabulary import Vocabulary
from adapter.languages.grammar.write import as_lark
from benchmarks.guided_conformance.__main__ import tiny_vocabulary
from benchmarks.reporting.report import Grid, Section
from benchmarks.reporting.result import Result, paired_ratio, spread
from benchmarks.running import program

ROUNDS = 15
QUICK_ROUNDS = 3

SETTINGS = r"""
root ::= entry+
entry ::= key " = " value "\n"
key ::= [a-z] [a-z0-9_]*
value ::= list | number | word | string
list ::= "[" (value (", " value)*)? "]"
number ::= "-"? ("0" | [1-9] [0-9]*) ("." [0-9]+)?
word ::= "yes" | "no" | "none"
string ::= "\"" ([^"\\\n] | "\\" ["\\nt])* "\""
"""

QUERY = r"""
root ::= select ";"
select ::= "SELECT " columns " FROM " table (" WHERE " condition)?
columns ::= "*" | column (", " column)*
column ::= "c_" [a-z0-9]+
table ::= "t_" [a-z]+ | "(" select ")"
condition ::= test (" AND " test | " OR " test)*
test ::= column " = " literal | column " IN (" select ")" | "(" condition ")"
literal ::= [0-9]+ | "'" [^'\n]* "'"
"""

CASES = {
    "settings": (
        SETTINGS,
        'name = "The quick brown fox jumps over the lazy dog"\nsizes = [1, -2.5, [30, none], yes]\n'
        'a_rather_long_key = ["first text", "second text with a \\"quote\\"", 1000000]\n',
    ),
    "query": (
        QUERY,
        "SELECT c_name, c_total, c_created FROM t_orders WHERE c_name = 'a name that is long' AND "
        "(c_total = 12345 OR c_id IN (SELECT c_id FROM t_customers WHERE c_city = 'Amsterdam'));",
    ),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print."""
    options = program.parser("grammar_masks", "Masks of grammars with and without terminals.")
    return program.run(_benchmark, options.parse_args(argv), sections)


def _benchmark(options: argparse.Namespace) -> Result:
    vocabulary = tiny_vocabulary()
    rounds = QUICK_ROUNDS if options.quick else ROUNDS
    times = {name: _walks(vocabulary, *case, rounds) for name, case in CASES.items()}
    with_, without = ({name: both[i] for name, both in times.items()} for i in (0, 1))
    ratios = {
        f"{name}_mask_ratio": paired_ratio(with_[name], without[name]).median for name in times
    }
    record = {
        "microseconds": {"with": with_, "without": without},
        "llguidance": metadata.version("llguidance"),
    }
    return Result(ratios, record, dict.fromkeys(ratios, "with terminals over by characters"))


def sections(record: Mapping[str, Any]) -> list[Section]:
    """The report of what the program wrote."""
    with_, without = record["microseconds"]["with"], record["microseconds"]["without"]
    rows = [
        [
            name,
            spread(without[name]).text(0),
            spread(with_[name]).text(0),
            paired_ratio(with_[name], without[name]).text(),
        ]
        for name in with_
    ]
    rounds = len(next(iter(with_.values())))
    grid = Grid(["grammar", "by characters, µs", "with terminals, µs", "ratio"], rows)
    text = [f"{rounds} walks each, in turn; llguidance {record['llguidance']}"]
    return [Section("Masks of grammars", text, [grid])]


def _walks(
    vocabulary: Vocabulary, grammar: str, text: str, rounds: int
) -> tuple[list[float], list[float]]:
    """Microseconds of a mask, the mean over each walk, with lexemes and without."""
    backend = GuidanceBackend(vocabulary)
    makers = [
        backend.compile(Part("guidance", "lark", as_lark(grammar, with_lexemes=with_lexemes)))
        for with_lexemes in (True, False)
    ]
    tokens = vocabulary.ll_tokenizer.tokenize_str(text)
    walks = [[_walk(maker, tokens, vocabulary.words) for maker in makers] for _ in range(rounds)]
    return [one for one, _ in walks], [other for _, other in walks]


def _walk(maker: Callable[[], Matcher], tokens: Sequence[int], words: int) -> float:
    matcher, mask = maker(), np.empty(words, np.int32)
    times = []
    for token in tokens:
        mask.fill(-1)
        started = time.perf_counter()
        matcher.narrow(mask)
        times.append(time.perf_counter() - started)
        if not matcher.advance(token):
            raise AssertionError("the text is not of the grammar")
    return statistics.fmean(times) * 1e6


if __name__ == "__main__":
    sys.exit(main())
