"""Running things: programs and their processes, servers, and the client that puts load on them."""
