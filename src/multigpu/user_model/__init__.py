"""A user's own model through the study's placements (`compare`), and traces of own scripts."""
