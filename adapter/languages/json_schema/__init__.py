"""JSON schemas: read, and what no text could satisfy taken out. Pure."""
