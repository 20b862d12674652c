"""Every command as a function that returns a typed result and prints nothing."""
