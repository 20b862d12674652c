"""Renderers: a document in, text out."""
