"""The contract: its request, its answers, and its refusals in words."""
