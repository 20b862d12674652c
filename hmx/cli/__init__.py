"""The command line: it reads options, calls a job and draws the result. Programs call the jobs directly."""
