"""Runs that train: five duties, checkpoints, evaluation, and how far the same budget brings each
placement.
"""
