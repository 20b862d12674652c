"""HackMatrix: its rules, its observations and its rewards."""
