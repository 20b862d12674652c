"""`hmx bench`."""
