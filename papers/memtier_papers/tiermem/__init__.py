"""TierMem: the reward of a router."""
