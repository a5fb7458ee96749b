"""Runs that train: five duties, checkpoints, evaluation, and where a budget ends."""
