"""What every test of a measurement gets is what those of MemTier get."""

from tests.conftest import _copied_schema, day, home, isolated, nowhere, server
from tests.shared.fixtures import database, postgres

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
