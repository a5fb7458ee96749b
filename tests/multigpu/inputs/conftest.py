"""Property tests: the same examples in every run, and no time limit an example, since machines that
test are often busy.
"""

from hypothesis import settings

settings.register_profile("inputs", max_examples=25, derandomize=True, deadline=None)
settings.load_profile("inputs")
