"""`hmx score-buffer`."""
