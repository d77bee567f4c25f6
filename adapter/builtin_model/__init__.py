"""The built-in model: fetched, converted, cached; adapter.builtin_model.model is its face."""
