"""Typed reports: the findings of a command, and the document that shows them."""
