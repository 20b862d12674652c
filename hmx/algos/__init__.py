"""Algorithms: PPO, Gumbel MuZero, Q-learning, and what they share."""
