"""Whether guided decoding keeps its word: JSON schemas with instances, for every backend.

`python -m benchmarks.guided_conformance` admits each schema of two sets, bench (of the real world)
and suite (the official test suite), as the server does, walks the tokens of its valid and invalid
instances under the masks, and draws random texts from them. No model runs: the built-in tokenizer
is all it needs. Exit status 1 where anything broke its schema unnoticed.

An instance's keys may come in any order, and a library may have one of its own: what is rejected is
tried again in others. A schema is *under* where an invalid instance got through, or a text might
have ended early on no valid document; else *over* where a valid one was rejected; else *exact*.

A schema is *held* where a mask stopped every invalid instance before its end, and every random text
that finished is valid and has no name twice: nothing was left to the check of the finished text. A
*dead end* is a text that no token may continue, or a draw that came to no end.
"""
