"""The shipped hooks, and what translates a host's payloads into them and back."""
