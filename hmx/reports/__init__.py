"""Typed reports: what a command finds out, and the document that shows it."""
