"""Formal languages as text: read, and written for the libraries. Pure."""
