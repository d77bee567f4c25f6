"""Grammars: what their text means, checked, and put so that llguidance and xgrammar read it. Pure.

Two dialects come in: GBNF, which xgrammar calls EBNF (`root ::= ...`), and Lark (`start: ...`).
Both are read into the same flat rules.
"""
