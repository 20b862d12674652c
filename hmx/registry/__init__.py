"""The known algorithms and environments with their facts; the user code, and its trust."""
