"""python -m benchmarks.running.plain_vllm MODEL [flags of vllm serve]: vLLM's server, no plugin."""

import os
import sys


def main() -> None:
    """Parse the command line and serve until told to stop."""
    # An empty list: no plugin may load, ours neither. The engine's processes inherit it.
    os.environ["VLLM_PLUGINS"] = ""

    from adapter.vllm_api import (
        FlexibleArgumentParser,
        ServeSubcommand,
        cli_env_setup,
        configure_logging_from_args,
    )

    cli_env_setup()
    command = ServeSubcommand()
    parser = FlexibleArgumentParser(prog="python -m benchmarks.running.plain_vllm")
    command.subparser_init(parser.add_subparsers(dest="subparser"))
    args = parser.parse_args(["serve", *sys.argv[1:]])
    configure_logging_from_args(args)
    command.validate(args)
    command.cmd(args)


if __name__ == "__main__":
    main()
