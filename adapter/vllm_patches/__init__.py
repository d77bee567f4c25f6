"""Each patch of vLLM: what it mends, and which vLLM file makes it unnecessary."""
