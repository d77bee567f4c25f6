"""What a JSON schema allows, worked out and written as a grammar. Pure."""
