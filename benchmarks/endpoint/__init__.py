"""`/v2/completions` beside `/v1/completions` of one server, measured by vLLM's own benchmark."""
