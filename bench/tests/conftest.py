"""What every test of a measurement gets is what those of MemTier get."""

__all__ = [
    *("_copied_schema", "database", "day", "home", "isolated", "nowhere", "postgres", "server"),
]
