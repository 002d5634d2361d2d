"""The papers behind MemTier: everything in them that is not on its default path, a folder each."""
