"""What drives the gradient: groups of episodes, buckets, loss components; pure, and above the agents."""
