"""Settings of all tests: property tests draw the same examples every time, and no test fails for being slow."""

from hypothesis import settings

settings.register_profile("napmem", deadline=None, derandomize=True)
settings.load_profile("napmem")
