"""From messages to entries: parsing, delivery keys, the recorder."""
