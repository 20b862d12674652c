"""`hmx report`: a page per run, or over several runs."""
