from adapter.languages.regex.parse import parse
from adapter.languages.regex.tree import Node, sequence, ANY_TEXT
def search_tree(pattern: str) -> Node:
    a = pattern.startswith("^"); b = pattern.endswith("$")
    t = parse(pattern[a:len(pattern)-b])
    return sequence([*([] if a else [ANY_TEXT]), t, *([] if b else [ANY_TEXT])])
