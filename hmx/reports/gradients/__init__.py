"""`hmx grad-report`."""
