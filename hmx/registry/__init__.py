"""What algorithms and environments there are, and what each says of itself; the code of users, and its trust."""
