"""Simulators that are not written in JAX, and the worker processes that step them; no JAX here."""
