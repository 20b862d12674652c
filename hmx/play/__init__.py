"""Episodes frame by frame: to watch an agent in a terminal, to save what it plays, and to play HackMatrix."""
