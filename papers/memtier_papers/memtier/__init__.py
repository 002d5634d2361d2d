"""MemTier: ranking weights learned from outcomes."""
