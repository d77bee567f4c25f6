"""adapter/reading."""
