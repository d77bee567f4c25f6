"""Scale LLM Engine's V2 completion contract on vLLM."""
