"""What every test of a measurement gets is what those of MemTier get."""

from tests.conftest import _copied_schema, database, day, home, isolated, nowhere, postgres, server

__all__ = [
    "_copied_schema",
    "database",
    "day",
    "home",
    "isolated",
    "nowhere",
    "postgres",
    "server",
]
