"""What runs in vLLM's engine process."""
