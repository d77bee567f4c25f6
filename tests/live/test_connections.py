"""Connections that clients keep open between requests."""

import http.client
import time
from urllib.parse import urlsplit

import pytest

from tests.live.server import Server

pytestmark = pytest.mark.live


def test_idle_connections_outlive_the_clients_own_limit(server: Server) -> None:
    """A connection that idled for longer than clients keep one takes the next request.

    httpx, and so openai's client, gives a connection up after 5 s. Were the server to do so at the
    same time, a request sent just then would meet a closed connection.
    """
    host = urlsplit(server.url)
    connection = http.client.HTTPConnection(host.hostname or "", host.port, timeout=30)
    connection.connect()
    socket = connection.sock
    for pause in (6.5, 0):
        connection.request("GET", "/health")
        response = connection.getresponse()
        response.read()
        assert response.status == 200
        time.sleep(pause)
    assert connection.sock is socket
    connection.close()
