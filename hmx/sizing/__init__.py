"""The sizes that follow from a configuration."""
