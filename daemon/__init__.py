"""The background: what runs when."""
