"""What a run leaves on disk, readable without JAX."""
