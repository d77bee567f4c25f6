"""What is said between the server and a process that reads bodies: pickles of our own making.

The bodies themselves go as they came, and are unpickled by nobody.
"""

import pickle
import struct
from array import array
from dataclasses import replace
from typing import Any

from adapter.errors import InvalidRequest
from adapter.planning.plan import Plan
from adapter.reading.read import Reading

HEADER = struct.Struct("!Q")
"""Before each message: its length in bytes."""

CPU_SECONDS = 30.0
"""CPU time that reading one body may take."""
WALL_FACTOR = 2
"""It is also ended when so many times as long has passed."""

Answer = Reading | InvalidRequest


def packed(answer: Answer) -> bytes:
    """An answer as bytes."""
    return pickle.dumps(_with_prompts(answer, _array), protocol=5)


def unpacked(content: bytes) -> Answer:
    """The answer of `packed`."""
    answer: Answer = pickle.loads(content)
    return _with_prompts(answer, _list)


def _with_prompts(answer: Answer, change: Any) -> Answer:
    if not isinstance(answer, Reading) or not isinstance(answer.outcome, Plan):
        return answer
    prompts = tuple(map(change, answer.outcome.prompts))
    return replace(answer, outcome=replace(answer.outcome, prompts=prompts))


def _array(prompt: Any) -> Any:
    """Token ids as one piece of memory, which is read in a tenth of the time."""
    return array("q", prompt) if isinstance(prompt, list) else prompt


def _list(prompt: Any) -> Any:
    return prompt.tolist() if isinstance(prompt, array) else prompt
