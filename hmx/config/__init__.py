"""The configuration of a run: schema, layers, files, presets, and what follows from it. Plain Python."""
