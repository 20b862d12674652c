"""Environments: the protocol, the built-in ones, those of other suites and those of users."""
