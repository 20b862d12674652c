"""The review of games: the few decisions that mattered, and what the alternatives were worth."""
