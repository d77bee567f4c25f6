"""`python -m adapter.builtin_model` prints the built-in model's folder as stdout's last line.

Progress goes to stderr. `--tiny` prints the folder of a random one-layer model with the same
tokenizer.
"""

import argparse
import sys

from adapter.builtin_model.model import ensure_default_model, ensure_tiny_model
from adapter.builtin_model.reporting import DefaultModelError, print_to_stderr


def main(arguments: list[str] | None = None) -> int:
    """Prepare the model and print its folder as the last line of stdout; 1 when that fails."""
    parser = argparse.ArgumentParser(
        prog="python -m adapter.builtin_model",
        description="Prepare the built-in model and print its folder.",
    )
    parser.add_argument(
        "--tiny", action="store_true", help="a random one-layer model for --load-format dummy"
    )
    options = parser.parse_args(arguments)
    try:
        folder = ensure_tiny_model() if options.tiny else ensure_default_model()
    except DefaultModelError as error:
        print_to_stderr(f"error: {error}")
        return 1
    print(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
