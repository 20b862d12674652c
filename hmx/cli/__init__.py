"""The command line: options in, job called, result drawn. A program calls the jobs themselves instead."""
