"""Placements inside one model: its stages as a small graph, where each may run, what a step then
costs, and the best found by search.
"""
