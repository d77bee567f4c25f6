"""Whether ordinary schemas are held: those that pydantic and zod print, on a real server.

`python -m benchmarks.ordinary_models` asks for texts of each shape, at two temperatures, once as
the server is and once with no text made again, and validates every one. `--walk` needs no engine:
it draws texts through the masks alone, in seconds.
"""
