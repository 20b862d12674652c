"""The known algorithms and environments with their facts; the code of users, and its trust."""
