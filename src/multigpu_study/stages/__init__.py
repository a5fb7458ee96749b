"""Placements inside one model: stages, where each may run, and Records of a search."""
