"""One file for each guided decoding library."""
