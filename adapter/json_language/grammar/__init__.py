"""Forms of JSON values as grammars for llguidance. Pure."""
