"""What is asked of vLLM's engine, and what comes back."""
