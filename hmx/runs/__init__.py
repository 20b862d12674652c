"""The host side of a run: the loop over compiled chunks, checkpoints, sinks and signals."""
