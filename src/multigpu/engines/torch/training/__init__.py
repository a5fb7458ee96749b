"""Training to the end of a budget in PyTorch: what every step owes, checkpoints, scores."""
