"""From the engine's updates to the bytes of an answer. Pure."""
