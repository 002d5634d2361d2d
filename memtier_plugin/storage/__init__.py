"""The ledgers and the index of a project, and the store over both."""
