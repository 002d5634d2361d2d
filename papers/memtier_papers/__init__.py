"""The papers that MemTier comes from: what of them is not on its default path, a folder each."""
