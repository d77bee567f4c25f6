"""The requests that README shows get the replies that README shows."""

import json
import re
from pathlib import Path

import pytest

from tests.live.server import Server

pytestmark = pytest.mark.live

README = Path(__file__).parents[2] / "README.md"


def test_readme_example(server: Server) -> None:
    """README's curl line gets README's choices, usage and headers."""
    text = README.read_text(encoding="utf-8")
    _, request_and_rest = text.split("<!-- example request -->")
    shown, reply_and_rest = request_and_rest.split("<!-- example reply -->")
    found = re.search(r"-d '(\{.*?\})'", shown, re.DOTALL)
    assert found is not None
    reply = reply_and_rest.split("```")[1]
    response = server.http.post("/v2/completions", json=json.loads(found[1]))
    head, body = reply.strip().split("\n\n", 1)
    assert head.startswith(f"HTTP/1.1 {response.status_code} ")
    for line in head.splitlines()[1:]:
        name, value = line.split(": ")
        assert response.headers[name] == value
    # What differs from run to run is shown as "…", and `created` as no number at all.
    expected = json.loads(body.replace('"created":…', '"created":0'))
    assert response.json()["choices"] == expected["choices"]
    assert response.json()["usage"] == expected["usage"]
    assert response.json().keys() == expected.keys()


def test_readme_refusal(server: Server) -> None:
    """README's example of a refusal is the error that its field gets."""
    text = README.read_text(encoding="utf-8")
    before, rest = text.split("<!-- example refusal -->")
    field = before.strip().splitlines()[-1].strip("`:")
    response = server.post(prompt="x", **json.loads(f"{{{field}}}"))
    assert response.status_code == 400
    assert response.text == rest.split("```")[1].strip()
