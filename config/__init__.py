"""``memtier.yaml``: every setting, documented, with its default."""
