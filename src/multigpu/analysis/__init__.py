"""Make tables, figures and sentences of Records: one frame (`frame.py`), one formula each."""
