"""Fills in what a new golden case lacks: `python -m tests.golden.record FILE`.

A case needs a name, a claim, a request, and what the engine says. What goes to the engine and the
answer are taken from the code as it is: read them against the contract before they are committed.
"""

import sys
from pathlib import Path

from tests.golden.files import Case, Json, cases_of, read, written
from tests.golden.player import Played, play

_ORDER = (
    *("name", "claim", "breaks_schema", "live", "server", "request"),
    *("engine", "engine_says", "answer", "streamed"),
)


def record(path: Path) -> list[str]:
    """Fill in the cases of a file that lack an answer; their names.

    `"streamed": null` asks for the answer to the same request as a stream.
    """
    content = read(path)
    filled = [case for case in cases_of(path) if _lacks(case.fields)]
    recorded = {case.fields["name"]: _recorded(case) for case in filled}
    cases = [recorded.get(fields["name"], fields) for fields in content["cases"]]
    path.write_text(written(content | {"cases": cases}), "utf-8")
    return list(recorded)


def _lacks(fields: Json) -> bool:
    return "answer" not in fields or fields.get("streamed", "") is None


def _recorded(case: Case) -> Json:
    played = play(case, streamed=False)
    found: Json = {"engine": played.calls, "answer": _reply(case, played)}
    if "streamed" in case.fields:
        reply = _reply(case, play(case, streamed=True))
        found["streamed"] = "same as answer" if reply == found["answer"] else reply
    fields: Json = {"engine_says": []} | case.fields | found
    return {name: fields[name] for name in _ORDER if name in fields}


def _reply(case: Case, played: Played) -> Json:
    final = played.kind == "events" and played.outputs == {"final"}
    return played.reply(case) | ({"output": "final"} if final else {})


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print(name, *record(Path(name).resolve()), sep="\n  recorded, to be reviewed: ")
