"""A user's own model through the study's placements: `compare`, what it finds, and the page it leaves."""
