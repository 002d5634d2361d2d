"""What every test of a measurement gets is what those of MemTier get."""

from tests.conftest import day, home, isolated, nowhere, server

__all__ = ["day", "home", "isolated", "nowhere", "server"]
