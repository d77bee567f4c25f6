"""What both dialects have in common: rules, alternatives, groups and repetitions."""

import re

from adapter.languages.grammar.rules import Element, GrammarError, Rule, Rules
from adapter.languages.grammar.tokens import Token, tokenize

MAX_NESTING = 200
MAX_REPEAT = 1_000_000
# llguidance numbers symbols in 16 bits.
MAX_RULES = 20_000


class Reader:
    """Reads rules from tokens; the dialects differ in statements and leaves."""

    pattern: re.Pattern[str]

    def __init__(self, text: str) -> None:
        text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
        self._tokens = list(tokenize(text, self.pattern))
        self._at = 0
        self._rules: Rules = {}
        self._taken = {token.text for token in self._tokens if token.kind == "name"} | {
            token.text.removesuffix("::=").strip() for token in self._tokens if token.kind == "head"
        }
        self._groups = 0

    def rules(self) -> Rules:
        """All rules by name, groups and directives among them.

        Raises:
            GrammarError: the text is not of this dialect, or uses what cannot be honoured.
        """
        while self._now.kind != "end":
            self._statement()
        return self._rules

    def _statement(self) -> None:
        raise NotImplementedError

    def _leaf(self, token: Token) -> Element:
        raise NotImplementedError

    @property
    def _now(self) -> Token:
        return self._tokens[self._at]

    def _take(self) -> Token:
        self._at += 1
        return self._tokens[self._at - 1]

    def _take_if(self, *texts: str) -> bool:
        found = self._now.kind in ("op", "repeat") and self._now.text in texts
        self._at += found
        return found

    def _expect(self, kind: str, text: str | None = None) -> Token:
        token = self._take()
        if token.kind != kind or text not in (None, token.text):
            raise self._unexpected(token, text or f"a {kind}")
        return token

    def _unexpected(self, token: Token, wanted: str | None = None) -> GrammarError:
        shown = {"newline": "the end of the line", "end": "the end"}.get(token.kind, token.text)
        instead = f", where {wanted} should stand" if wanted else ""
        return GrammarError(f"{shown[:40]} is out of place{instead}", token.line)

    def _add(self, rule: Rule) -> Rule:
        if rule.name in self._rules:
            raise GrammarError(f"{rule.name} is defined twice", rule.line)
        if len(self._rules) == MAX_RULES:
            raise GrammarError(f"more than {MAX_RULES} rules and groups", rule.line)
        self._rules[rule.name] = rule
        return rule

    def _body(self, rule: Rule) -> None:
        """What a rule derives; the open groups are a stack, innermost last."""
        stack = [rule]
        while self._now.kind not in ("head", "newline", "end"):
            self._step(stack, self._take())
        if len(stack) > 1:
            raise GrammarError("a bracket is not closed", stack[-1].line)

    def _step(self, stack: list[Rule], token: Token) -> None:
        mark = token.text if token.kind == "op" else ""
        sequence = stack[-1].alternatives[-1]
        if mark in ("(", "["):
            stack.append(self._group(stack, token))
        elif mark == "|":
            stack[-1].alternatives.append([])
        elif mark in ("&", "~"):
            sequence.append(Element("lark", mark, token.line))
        elif mark == "->":
            self._expect("name")
        elif mark in (")", "]"):
            group = self._close(stack, token)
            self._append(stack, Element("name", group.name, group.line))
        else:
            self._append(stack, self._leaf(token))

    def _append(self, stack: list[Rule], part: Element) -> None:
        part.low, part.high = self._times()
        if part.high != 0:
            stack[-1].alternatives[-1].append(part)

    def _group(self, stack: list[Rule], token: Token) -> Rule:
        if len(stack) > MAX_NESTING:
            raise GrammarError(f"more than {MAX_NESTING} brackets within each other", token.line)
        around = stack[-1]
        before = around.alternatives[-1][-1:]
        # llguidance takes what is lazy or negated for one terminal, and all in it with it.
        whole = around.is_terminal or bool(around.options or (before and before[0].text == "~"))
        closer = ")" if token.text == "(" else "]"
        return self._add(Rule(self._group_name(whole), token.line, whole, closer))

    def _group_name(self, upper: bool) -> str:
        while True:
            self._groups += 1
            name = f"{'GROUP' if upper else 'group'}-{self._groups}"
            if name not in self._taken:
                return name

    def _close(self, stack: list[Rule], token: Token) -> Rule:
        if stack[-1].closer != token.text:
            raise GrammarError(f"{token.text} closes nothing", token.line)
        if token.text == "]":
            stack[-1].alternatives.append([])
        return stack.pop()

    def _times(self) -> tuple[int, int | None]:
        """How often the element before stands: its quantifier, if it has one."""
        if self._now.text == "~" and self._tokens[self._at + 1].kind == "number":
            return self._tilde_times()
        if self._now.kind != "repeat":
            return 1, 1
        token = self._take()
        simple: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
        return simple.get(token.text) or _braces(token)

    def _tilde_times(self) -> tuple[int, int | None]:
        line = self._take().line
        low = self._take().text
        high = self._expect("number").text if self._take_if("..") else low
        return _bounds(low, high, line)


def _braces(token: Token) -> tuple[int, int | None]:
    low, *rest = (bound.strip() for bound in token.text[1:-1].split(","))
    high = rest[0] if rest else low
    if len(rest) > 1 or not (low or high):
        raise GrammarError(f"{token.text[:40]} is no repetition", token.line)
    return _bounds(low or "0", high, token.line)


def _bounds(low: str, high: str, line: int) -> tuple[int, int | None]:
    if not all(bound.isdecimal() and len(bound) < 10 for bound in (low, high or "0")):
        raise GrammarError("a repetition has bounds that cannot be read", line)
    least, most = int(low), int(high) if high else None
    if max(least, most or 0) > MAX_REPEAT:
        raise GrammarError(f"a repetition of more than {MAX_REPEAT}", line)
    if most is not None and most < least:
        raise GrammarError("a repetition ends below its start", line)
    return least, most


def special(token: Token) -> GrammarError:
    """The refusal of what is no text."""
    what = "other grammars" if token.text.startswith("@") else "special tokens"
    return GrammarError(f"{token.text[:40]}: {what} cannot be used", token.line)
