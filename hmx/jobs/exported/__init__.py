"""Policies that run without hmx: the program, its file formats, the check that they agree, and the contract."""
