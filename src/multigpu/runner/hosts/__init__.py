"""Several hosts that run one command each."""
