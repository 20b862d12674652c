"""Adapters for the environments, networks and algorithms of users; nothing below imports them by name."""
