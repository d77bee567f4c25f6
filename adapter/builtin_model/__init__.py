"""The built-in model: fetched, converted, cached."""
