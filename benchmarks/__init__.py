"""Benchmarks: programs that start a server of their own on the loopback and measure it."""
