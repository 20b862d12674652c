"""The shared mathematics of gradient reports: groups of episodes, buckets, norms and shares."""
