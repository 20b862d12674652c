"""`hmx doctor`: what looks wrong in the metrics of a run, since when, and what to try."""
