"""What guided decoding costs a running server: throughput, and stalls of other people's streams.

Throughput: completion tokens a second of 16 streams that are held to a constraint, over the same
unguided, for each backend; each guided run is compared with the unguided one just before it.
Stalls: the time between the events of one plain stream while constraints that the server has never
seen arrive. The rival, vLLM without this plugin on its outlines backend, does the same after us.

`python -m benchmarks.guided_serving [--data DIR] [--runs N] [--json FILE]
[--only throughput|stalls] [--skip-rival] [--quick]`
"""
