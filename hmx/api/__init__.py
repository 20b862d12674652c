"""The functions of `import hmx`: the jobs and reports of the command line, with Python values in and out."""
