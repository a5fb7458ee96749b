"""Describe what is measured as plain data (`run`), how parallel it is (`parallel`), and what of it
cannot be combined (`rules`). Nothing here looks up a placement or a workload: they are handed in.
"""
