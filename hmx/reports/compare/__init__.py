"""`hmx compare`."""
