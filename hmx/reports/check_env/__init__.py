"""`hmx check-env`."""
