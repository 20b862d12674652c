"""Run training on the host: the loop over compiled chunks, checkpoints, sinks and signals."""
