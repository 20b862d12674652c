"""Search over options: many runs in one folder, by any number of workers on any number of hosts."""
