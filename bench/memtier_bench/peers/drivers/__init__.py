"""Scripts that run in a peer's own environment, without MemTier."""
