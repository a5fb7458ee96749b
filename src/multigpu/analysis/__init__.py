"""From Records to tables, figures and sentences. Every number passes through one frame (`frame.py`)
and one formula (`formulas.py`).
"""
