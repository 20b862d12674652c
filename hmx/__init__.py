"""hmx: train, watch and measure agents on HackMatrix, in pure JAX."""
