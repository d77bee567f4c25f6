"""python -m adapter.serve [MODEL] [any flag of vllm serve]: vLLM's server with this plugin on."""

import os
import sys
from argparse import ArgumentParser
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import entry_points
from typing import Any

from adapter import settings, vllm_version

PLUGIN = "completion_v2"
_ENDPOINT_GROUP = "vllm.endpoint_plugins"
_OTHER_GROUPS = (
    "vllm.general_plugins",
    "vllm.platform_plugins",
    "vllm.io_processor_plugins",
    "vllm.stat_logger_plugins",
)
# Two for each of the contract's 128 beams, and room for the tokens that end a text.
MAX_LOGPROBS = 2 * 128 + 64
# uvicorn closes a connection that idled for vLLM's default of 5 s, and so do the clients built on
# httpx: a request sent at that moment is lost. Proxies keep theirs for up to 60 s.
KEEP_ALIVE_SECONDS = 75
# Of several API servers vLLM kills those that have not ended in this time after SIGTERM, which its
# default of 0 leaves none for: their clients would see a cut connection.
SHUTDOWN_SECONDS = 3
_PROG = "python -m adapter.serve"


def main(argv: Sequence[str] | None = None) -> None:
    """Parse the command line and serve until told to stop.

    Exits with 1 and one line where vLLM is missing or of an untested version.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        vllm_version.check(vllm_version.installed())
    except vllm_version.UnsupportedVllm as error:
        sys.exit(str(error))
    os.environ["VLLM_PLUGINS"] = plugins_to_load(os.environ, installed_plugins())
    os.environ.setdefault("VLLM_HTTP_TIMEOUT_KEEP_ALIVE", str(KEEP_ALIVE_SECONDS))

    from adapter.vllm_api import ServeSubcommand, cli_env_setup, configure_logging_from_args

    cli_env_setup()
    command = ServeSubcommand()
    parser = make_parser(command)
    if names_no_model(parser, arguments):
        arguments = with_built_in_model(arguments)
    args = parser.parse_args(["serve", *arguments])
    configure_logging_from_args(args)
    command.validate(args)
    command.cmd(args)


def installed_plugins() -> set[str]:
    """The names of the installed plugins that vLLM loads unless it is told not to."""
    return {plugin.name for group in _OTHER_GROUPS for plugin in entry_points(group=group)}


def plugins_to_load(environment: Mapping[str, str], installed: Iterable[str]) -> str:
    """The value of VLLM_PLUGINS that adds this plugin and takes none away.

    Once set, VLLM_PLUGINS is the list of all plugins that may load; unset, all may but endpoint
    plugins.
    """
    chosen = environment.get("VLLM_PLUGINS")
    names = sorted(installed) if chosen is None else [n for n in chosen.split(",") if n.strip()]
    return ",".join(dict.fromkeys([*names, PLUGIN]))


def make_parser(command: Any) -> ArgumentParser:
    """vLLM's parser of `vllm serve`, with this plugin's flags in a group of their own."""
    from adapter.vllm_api import FlexibleArgumentParser

    parser: ArgumentParser = FlexibleArgumentParser(prog=_PROG)
    serve_parser = command.subparser_init(parser.add_subparsers(dest="subparser"))
    serve_parser.prog = _PROG
    serve_parser.usage = f"{_PROG} [MODEL] [options]"
    serve_parser.description = (
        "vLLM's server with POST /v2/completions, the V2 completion contract. Takes every flag of "
        "`vllm serve`. Without MODEL it serves a small built-in model."
    )
    serve_parser.epilog = serve_parser.epilog.replace("vllm serve", _PROG)
    settings.add_flags(serve_parser)
    # vLLM's own default of 20 would forbid the wider beams of the contract; see beam_search.py.
    serve_parser.set_defaults(max_logprobs=MAX_LOGPROBS, shutdown_timeout=SHUTDOWN_SECONDS)
    return parser


def names_no_model(parser: ArgumentParser, arguments: Sequence[str]) -> bool:
    """True where neither the command line nor a configuration file names a model."""
    default = parser.parse_args(["serve"]).model
    try:
        args = parser.parse_args(["serve", *arguments])
    except ValueError:
        # vLLM refuses --served-model-name without a model. Anything else it refuses, it refuses
        # again beside the built-in model.
        return True
    return getattr(args, "model_tag", None) is None and args.model == default


def with_built_in_model(arguments: Sequence[str]) -> list[str]:
    """The command line for the built-in model, with settings that suit a laptop's CPU.

    A flag that the user gave stays the user's.
    """
    from adapter.builtin_model.model import MODEL_NAME, ensure_default_model
    from adapter.vllm_api import current_platform

    folder = ensure_default_model()
    defaults: dict[str, list[str]] = {"--served-model-name": [MODEL_NAME], "--host": ["127.0.0.1"]}
    if current_platform.is_cpu():
        os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "2")
        # Compiling takes minutes on a small machine, and gains little for a small model.
        defaults["--enforce-eager"] = []
    given = {argument.partition("=")[0].replace("_", "-") for argument in arguments}
    flags = [
        part for flag, values in defaults.items() if flag not in given for part in (flag, *values)
    ]
    return [str(folder), *flags, *arguments]


if __name__ == "__main__":
    main()
