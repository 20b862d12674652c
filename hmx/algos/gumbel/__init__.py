"""Gumbel MuZero with the environment as its model."""
