"""A scripted player of HackMatrix without a network: a baseline, and a teacher for networks.

It tries every legal action in short scripted rollouts and takes the one with the best mean worth. It knows what the
player sees, and draws everything hidden again for each rollout.
"""
