"""`hmx compute-config`."""
