"""A regular expression of lm-format-enforcer's, exactly: its automaton as a table over bytes."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from interegular.fsm import FSM, anything_else
from lmformatenforcer import CharacterLevelParserConfig, RegexParser

from adapter.guided.matcher import Mask
from adapter.guided.token_trie import Table, TokenRuns

_Ints = npt.NDArray[np.int32]
_Bools = npt.NDArray[np.bool_]

MOST_MASKS = 512
"""Masks that are kept of one constraint: 6 kB each for 49 thousand tokens."""

_MOST_ROWS = 1 << 15  # of the table, 1 kB each


@dataclass(frozen=True)
class RegexTable:
    """A regular expression as an automaton over bytes: a row for each state, 0 the dead one."""

    start: int
    finals: frozenset[int]
    table: Table

    @classmethod
    def build(cls, pattern: str) -> "RegexTable":
        """The table of a regular expression. Pure Python, and seconds for a large one.

        Raises:
            Exception: the library cannot read it, no text matches, or it grows too large.
        """
        fsm = RegexParser(pattern, CharacterLevelParserConfig(alphabet="")).context.pattern
        start, finals, moves, kinds = _numbered(fsm)
        if not start:
            raise ValueError("no text matches")
        return cls(start, finals, _over_bytes(moves, kinds))

    def save(self, path: Path) -> None:
        """Write it for another process of ours."""
        with path.open("wb") as file:
            np.savez(file, start=self.start, finals=sorted(self.finals), table=self.table)

    @classmethod
    def load(cls, path: Path) -> "RegexTable":
        """Read what save() wrote.

        Raises:
            OSError: there is no such file.
        """
        with np.load(path) as saved:
            finals = frozenset(saved["finals"].tolist())
            return cls(int(saved["start"]), finals, saved["table"])


class RegexAutomaton:
    """A regular expression over a vocabulary."""

    def __init__(self, tokens: TokenRuns, regex: RegexTable) -> None:
        self.start, self._finals, self._table = regex.start, regex.finals, regex.table
        self._tokens = tokens
        self._masks: dict[int, Mask] = {}

    def narrow(self, state: int, mask: Mask) -> None:
        if (allowed := self._masks.get(state)) is None:
            if len(self._masks) >= MOST_MASKS:
                self._masks.clear()
            allowed = self._masks[state] = self._tokens.mask(self._table, state)
        np.bitwise_and(mask, allowed, out=mask)

    def after(self, state: int, text: bytes) -> int | None:
        for byte in text:
            state = int(self._table[state, byte])
        return state or None

    def ends(self, state: int) -> bool:
        return state in self._finals


def _numbered(fsm: FSM) -> tuple[int, frozenset[int], _Ints, _Ints]:
    """The automaton's start, its ends, its moves by kind of character, the kind of each character.

    States count from 1, those from which no end can be reached are 0; kind 0 is no character's.
    """
    rows = {state: row for row, state in enumerate(fsm.map, 1)}
    columns = {key: column for column, key in enumerate(fsm.alphabet.by_transition, 1)}
    moves = np.zeros((len(rows) + 1, len(columns) + 1), np.int32)
    for state, row in rows.items():
        for key, target in fsm.map[state].items():
            moves[row, columns[key]] = rows.get(target, 0)
    finals = frozenset(rows[state] for state in fsm.finals if state in rows)
    live = _live(moves, finals)
    moves[~live[moves]] = 0
    start = rows.get(fsm.initial, 0)
    return start if live[start] else 0, finals, moves, _kinds(fsm, columns)


def _live(moves: _Ints, finals: Iterable[int]) -> _Bools:
    live = np.zeros(len(moves), np.bool_)
    live[list(finals)] = True
    while (more := live | live[moves].any(axis=1)).sum() > live.sum():
        live = more
    return live


def _kinds(fsm: FSM, columns: dict[Any, int]) -> _Ints:
    """The column of each character, in lines of 64: what one last byte of UTF-8 tells apart."""
    kinds = np.zeros(5 << 18, np.int32)
    for symbol, key in fsm.alphabet.items():
        if symbol is anything_else:
            kinds[:0x110000][kinds[:0x110000] == 0] = columns[key]
    for symbol, key in fsm.alphabet.items():
        if symbol is not anything_else:
            kinds[ord(symbol)] = columns[key]
    kinds[0xD800:0xE000] = 0
    return kinds.reshape(-1, 64)


def _over_bytes(moves: _Ints, kinds: _Ints) -> _Ints:
    """The table over bytes: the moves' own states first, then those inside a character.

    Raises:
        ValueError: it would be too large.
    """
    blocks = [np.zeros((len(moves), 256), np.int32)]
    blocks[0][:, :0x80] = moves[:, kinds[:2].reshape(-1)]
    size = len(moves)
    lines, targets = kinds.copy(), np.ascontiguousarray(moves.T)
    # For 2, 3 and 4 bytes: the first one's least value, how many, and what would be overlong.
    for lead, count, overlong in ((0xC0, 32, 128), (0xE0, 16, 32), (0xF0, 5, 16)):
        lines.reshape(-1)[:overlong] = 0
        different: dict[bytes, int] = {bytes(lines[0].nbytes): 0}
        firsts = np.flatnonzero(np.append(True, (lines[1:] != lines[:-1]).any(axis=1)))
        runs = [different.setdefault(lines[i].tobytes(), len(different)) for i in firsts]
        numbers = np.repeat(np.array(runs, np.int32), np.diff(np.append(firsts, len(lines))))
        below = targets
        targets = np.zeros((len(different), len(moves)), np.int32)
        for line, number in different.items():
            after = below[np.frombuffer(line, np.int32)].T
            alive = after.any(axis=1)
            targets[number][alive] = size + np.arange(alive.sum())
            blocks.append(np.zeros((alive.sum(), 256), np.int32))
            blocks[-1][:, 0x80:0xC0] = after[alive]
            size += len(blocks[-1])
            if size > _MOST_ROWS:
                raise ValueError(f"its automaton has more than {_MOST_ROWS} states")
        blocks[0][:, lead : lead + count] = targets[numbers[:count]].T
        lines = np.resize(numbers, (-(-len(numbers) // 64), 64))
    return np.concatenate(blocks)
