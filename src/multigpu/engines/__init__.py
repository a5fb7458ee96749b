"""One engine a framework, and what both share. Only workers import these."""
