"""Records: what they say, and the folders and archives that hold them."""
