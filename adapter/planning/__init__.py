"""From a checked request to the work that is asked of the engine. Pure."""
