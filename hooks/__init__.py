"""The shipped hooks, and the adapters between hosts' payloads and MemTier's records."""
