"""`hmx doctor`: problems in the metrics of a run, the step at which they began, and advice."""
