"""A user's own model, trained and measured."""
