"""What /v2/completions costs in the API server process, over vLLM's own /v1/completions."""
