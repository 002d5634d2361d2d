"""MemTier in agent frameworks: one module for each, which imports that framework."""
