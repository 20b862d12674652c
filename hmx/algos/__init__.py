"""Algorithms: PPO, Gumbel MuZero, Q-learning, and their common parts."""
