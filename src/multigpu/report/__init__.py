"""The report: notebooks, the pages they make, the site."""
