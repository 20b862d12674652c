"""`hmx study report`."""
