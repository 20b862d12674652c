"""Reinforcement learning as maths on arrays: no environments, no configuration."""
