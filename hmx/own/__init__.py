"""Adapters for users' environments, networks and algorithms; nothing below imports them by name."""
