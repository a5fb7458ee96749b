"""Placements inside one model: its stages, where each may run, and Records of what a search over
their placements found.
"""
