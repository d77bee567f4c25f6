"""Regular expressions: read as Python reads them, written for each library. Pure."""
