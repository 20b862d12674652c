"""Environments: the protocol, HackMatrix and the small ones, and the factory."""
