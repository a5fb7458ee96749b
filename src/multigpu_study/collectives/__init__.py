"""All-reduces written out in messages, timed alone."""
