"""The Model Context Protocol: MemTier's tools, resources and prompt for any client."""
