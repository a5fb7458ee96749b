"""A user's own model through the study's placements (`compare`, what it finds, its page), and
traces of a user's own scripts.
"""
