"""The rules and terminals of a grammar as they are written."""

import json

from adapter.json_language.normal_form.forms import Conditions
from adapter.languages.regex.json_text import json_string
from adapter.languages.regex.tree import Node
from adapter.languages.regex.write import to_lark_terminal

# As llguidance's own JSON has it, so that its lexers become one.
_BLANKS = r"[\x20\x0A\x0D\x09]+"


class Rules:
    """A grammar that grows; each terminal and each value is named once."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._terminals: dict[str, str] = {}
        self._names: dict[int, tuple[Node, str]] = {}
        """By identity: objects that say the same of their names share the tree."""
        self._values: dict[Conditions, str] = {}
        self._waiting: list[Conditions] = []
        self._count = 0

    def add(self, name: str, alternatives: list[str]) -> None:
        """A rule."""
        self._lines.append(f"{name}: " + "\n  | ".join(alternatives))

    def new(self) -> str:
        """A name for a rule."""
        self._count += 1
        return f"r{self._count}"

    def terminal(self, expression: str) -> str:
        """The name of a terminal."""
        return self._terminals.setdefault(expression, f"T{len(self._terminals)}")

    def names(self, tree: Node) -> str:
        """The terminal of the names of members in a language."""
        if id(tree) not in self._names:
            text = to_lark_terminal(json_string(tree))
            self._names[id(tree)] = tree, self.terminal(text)
        return self._names[id(tree)][1]

    def key(self, name: str) -> str:
        """The terminal of a member's name."""
        return json.dumps(json.dumps(name, ensure_ascii=False), ensure_ascii=False)

    def value(self, conditions: Conditions) -> str:
        """The name of a value's rule, which will be asked for."""
        if conditions not in self._values:
            self._values[conditions] = f"v{len(self._values)}"
            self._waiting.append(conditions)
        return self._values[conditions]

    def next_value(self) -> Conditions | None:
        """A value whose rule is still to be added."""
        return self._waiting.pop() if self._waiting else None

    def text(self) -> str:
        """The grammar."""
        terminals = [f"{name}: {expression}" for expression, name in self._terminals.items()]
        return "\n".join((*self._lines, *terminals, f"%ignore /{_BLANKS}/", ""))
