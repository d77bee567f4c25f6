"""`python -m vllm_server`: adapter.serve under the command line that LLM Engine writes.

LLM Engine starts its containers with `python -m vllm_server --model FOLDER --port 5005 --host "::"`
and one flag for each field of an endpoint's options. Some of those flags have left vLLM; here they
are mapped to what took their place, or taken with a warning, so that an endpoint's stored options
go on starting.
"""

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from adapter.serve import main as serve

# The adapter reads it: LLM Engine's forwarder asks on /v1/completions.
SWITCH = "COMPLETION_V2_LLM_ENGINE"

# LLM Engine gives its pods 600 s to end and has no preStop: 60 s are left to tear the engine down.
SHUTDOWN_TIMEOUT = 540

RENAMED = {
    "--cache-dtype": "--kv-cache-dtype",
    "--max-gpu-memory-utilization": "--gpu-memory-utilization",
}

ROPE_SCALING = "--rope-scaling"

# What each did is decided by vLLM alone now; the reasons are for the log.
WITHOUT_EFFECT = {
    "--disable-log-requests": "requests are not logged unless --enable-log-requests is given",
    "--max-seq-len-to-capture": "see --max-cudagraph-capture-size",
    "--override-neuron-config": "there is no Neuron build here",
    "--quantization-param-path": "scales of the KV cache are read from the checkpoint",
    "--swap-space": "preempted requests are computed again, not swapped",
}


@dataclass(frozen=True, slots=True)
class Option:
    """One flag of the command line with its values, or values before any flag (name is empty)."""

    name: str
    values: tuple[str, ...]
    spelling: tuple[str, ...]
    """The arguments as they were written."""


def main(argv: Sequence[str] | None = None) -> None:
    """Serve until told to stop.

    Exits with 2 and one line where a retired flag has no usable value.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    os.environ.setdefault(SWITCH, "1")
    try:
        arguments = translate(arguments, os.environ, warn=_warn)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    serve(arguments)


def translate(
    arguments: Sequence[str], environment: Mapping[str, str], *, warn: Callable[[str], None]
) -> list[str]:
    """LLM Engine's command line as adapter.serve takes it.

    Raises:
        ValueError: a retired flag that is mapped has no value, or one that is no JSON object.
    """
    options = split(arguments)
    given = {option.name: option for option in options}
    kept = [part for option in options for part in _today(option, given, warn)]
    model = [_value(given["--model"])] if "--model" in given else []
    if ROPE_SCALING in given:
        kept += _with_rope(given[ROPE_SCALING], given.get("--hf-overrides"), model, warn)
    elif "--hf-overrides" in given:
        kept += given["--hf-overrides"].spelling
    if "--shutdown-timeout" not in given:
        kept += ["--shutdown-timeout", str(SHUTDOWN_TIMEOUT)]
    if _several_nodes(environment) and "--distributed-executor-backend" not in given:
        # init_ray.sh has joined the nodes; vLLM's own choice would be one node.
        kept += ["--distributed-executor-backend", "ray"]
    # vLLM takes the model by its place, and warns of --model.
    return [*model, *kept]


def _today(
    option: Option, given: Mapping[str, Option], warn: Callable[[str], None]
) -> Sequence[str]:
    """The option as vLLM takes it today; nothing for those that `translate` sets itself."""
    if option.name in ("--model", "--hf-overrides", ROPE_SCALING):
        return ()
    if option.name in RENAMED:
        new = RENAMED[option.name]
        if new in given:
            warn(f"{option.name} is left out: {new} is given too.")
            return ()
        warn(f"{option.name} is now {new}.")
        return new, _value(option)
    if option.name in WITHOUT_EFFECT:
        spelling = " ".join(option.spelling)
        warn(f"{spelling} has no effect: {WITHOUT_EFFECT[option.name]}.")
        return ()
    return option.spelling


def split(arguments: Sequence[str]) -> list[Option]:
    """The flags in their order, each with the values that follow it.

    A flag's name has dashes for underscores, as vLLM reads it; its spelling is left alone.
    """
    options: list[Option] = []
    for argument in arguments:
        if argument.startswith("-") and not _is_number(argument):
            name, equals, value = argument.partition("=")
            values = (value,) if equals else ()
            options.append(Option(_canonical(name), values, (argument,)))
        elif options:
            last = options.pop()
            options.append(Option(last.name, (*last.values, argument), (*last.spelling, argument)))
        else:
            options.append(Option("", (argument,), (argument,)))
    return options


def _canonical(name: str) -> str:
    return name.replace("_", "-") if name.startswith("--") else name


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _value(option: Option) -> str:
    if len(option.values) != 1 or not option.values[0]:
        raise ValueError(f"{option.name} takes one value, not {list(option.values)}.")
    return option.values[0]


def _object(option: Option) -> dict[str, object]:
    try:
        value = json.loads(_value(option))
    except json.JSONDecodeError as error:
        raise ValueError(f"{option.name} is not JSON: {error}.") from None
    if not isinstance(value, dict):
        raise ValueError(f"{option.name} must be a JSON object.")
    return value


def _with_rope(
    rope: Option, overrides: Option | None, model: Sequence[str], warn: Callable[[str], None]
) -> list[str]:
    """--hf-overrides with the scaling in it. What --hf-overrides says itself is kept."""
    merged = {} if overrides is None else _object(overrides)
    if "rope_parameters" in merged:
        warn("--rope-scaling is left out: --hf-overrides has rope_parameters.")
    else:
        warn("--rope-scaling is now rope_parameters in --hf-overrides.")
        parameters = _object(rope)
        # The override replaces all of rope_parameters, and without the model's own base frequency
        # every position would be wrong.
        theta = _rope_theta(model)
        if "rope_theta" not in parameters and theta is None:
            warn("No rope_theta in the model's config.json: the architecture's default is taken.")
        elif theta is not None:
            parameters.setdefault("rope_theta", theta)
        merged["rope_parameters"] = parameters
    return ["--hf-overrides", json.dumps(merged)]


def _rope_theta(model: Sequence[str]) -> float | None:
    try:
        config = json.loads((Path(model[0]) / "config.json").read_text(encoding="utf-8"))
        theta = (config.get("rope_parameters") or {}).get("rope_theta", config.get("rope_theta"))
    except (AttributeError, IndexError, OSError, ValueError):
        return None
    return theta if isinstance(theta, int | float) else None


def _several_nodes(environment: Mapping[str, str]) -> bool:
    """True where LLM Engine put the endpoint on several nodes."""
    size = environment.get("RAY_CLUSTER_SIZE", "1")
    return size.isdigit() and int(size) > 1


def _warn(message: str) -> None:
    # vLLM's logging is set up later, with the command line that is being made here.
    print(f"WARNING vllm_server: {message}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
