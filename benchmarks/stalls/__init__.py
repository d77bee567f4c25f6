"""How long one request can hold up all others: python -m benchmarks.stalls."""
