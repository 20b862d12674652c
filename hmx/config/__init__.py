"""The configuration of a run: schema, layers, files, presets, and derived values. Plain Python."""
