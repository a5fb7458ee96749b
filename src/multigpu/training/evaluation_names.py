"""Names of scores that the analysis knows."""

from __future__ import annotations

MORE_IS_BETTER = {"accuracy": True, "bleu": True, "loss": False, "perplexity": False}
"""Direction of the scores that the analysis knows; of others, more is taken to be better."""
