"""Progress of commands and runs: a panel or bars in a terminal, lines elsewhere, and JSON for programs."""
