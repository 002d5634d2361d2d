"""Messages into entries: parsing, delivery keys, the recorder."""
