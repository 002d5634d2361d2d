"""Importance, persona, priority and tiers of memories (HMO)."""
