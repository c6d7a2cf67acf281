"""Settings for every test: property tests must not fail for a slow machine."""

from hypothesis import settings

settings.register_profile("labkit", deadline=None)
settings.load_profile("labkit")
