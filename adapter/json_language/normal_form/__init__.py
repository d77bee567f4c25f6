"""JSON schemas as what they allow: for each type a list of alternatives, without negation. Pure."""
