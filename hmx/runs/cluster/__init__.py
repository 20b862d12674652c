"""Run one training job on several processes."""
