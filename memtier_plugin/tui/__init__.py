"""The full-screen view of the terminal, with Textual (the extra `tui`)."""
