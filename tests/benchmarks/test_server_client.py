"""Asking a server, with one that answers without an engine."""

import http.server
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.running.process import BenchmarkError
from benchmarks.running.server import Server, free_port, running_server


class _Answers(http.server.BaseHTTPRequestHandler):
    """Gives every body back as a choice; refuses those without a prompt."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"])).decode()
        answer = f'{{"choices": [{{"text": " yes", "body": {body}}}], "usage": {{}}}}'.encode()
        self.send_response(200 if "prompt" in body else 400)
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing."""


@pytest.fixture
def server() -> Iterator[Server]:
    with http.server.HTTPServer(("127.0.0.1", free_port()), _Answers) as answers:
        thread = threading.Thread(target=answers.serve_forever, args=(0.01,))
        thread.start()
        yield Server(os.getpid(), answers.server_port, "tiny")
        answers.shutdown()
        thread.join()


def test_asking_posts_the_fields_with_the_model(server: Server) -> None:
    completion = server.ask(prompt="a", n=2)
    assert completion.texts == [" yes"]
    assert completion.choices[0]["body"] == {"model": "tiny", "prompt": "a", "n": 2}


def test_a_refusal_is_an_error_with_the_answer(server: Server) -> None:
    with pytest.raises(BenchmarkError, match=r"answered 400: .*yes"):
        server.ask(n=2)


def test_a_module_that_does_not_serve_is_an_error_with_its_words(tmp_path: Path) -> None:
    with (
        pytest.raises(BenchmarkError, match=r"usage: python -m json\.tool"),
        running_server(tmp_path, "tiny", module="json.tool"),
    ):
        pass
