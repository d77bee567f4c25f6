"""Guided decoding: constraints, the backends that enforce them, and who compiles what where."""
