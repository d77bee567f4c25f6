"""Formats."""
from adapter.languages.regex.tree import Node
def format_tree(name: str) -> Node | None:
    return None
