"""What every test of a mechanism gets is what those of MemTier get."""

from tests.conftest import _copied_schema, day, home, isolated, nowhere, server
from tests.regression.conftest import opened, past_home

__all__ = ["_copied_schema", "day", "home", "isolated", "nowhere", "opened", "past_home", "server"]
