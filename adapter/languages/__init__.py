"""Formal languages as text: read, and written for the libraries. Pure.

Each folder reads one kind and writes it; `characters`, `escapes` and `budget` are shared. A tree of
`regex.tree` is the one form in which all of them describe the regular languages, and
`regex.automaton` makes an automaton of it.
"""
