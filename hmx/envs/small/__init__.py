"""Small classic and diagnostic environments."""
