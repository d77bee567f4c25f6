"""What the making of the built-in model says: its progress, and why it failed."""

import sys
from collections.abc import Callable

Report = Callable[[str], None]
"""Takes one line of progress."""


class DefaultModelError(RuntimeError):
    """The built-in model cannot be had; the message is one line that says why."""


def print_to_stderr(message: str) -> None:
    """Print one line of progress to stderr."""
    print(message, file=sys.stderr, flush=True)
