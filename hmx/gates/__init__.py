"""Keep a change only if it helps: pairs of runs on the same seeds, and one error budget for a whole campaign."""
