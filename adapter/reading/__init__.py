"""Bodies become plans: small ones at once, large ones in a process of their own."""
