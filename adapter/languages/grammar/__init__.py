"""Grammars in EBNF and Lark: read, checked, and written for the libraries. Pure."""
