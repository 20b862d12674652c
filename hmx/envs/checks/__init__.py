"""Checks that every environment must pass."""
