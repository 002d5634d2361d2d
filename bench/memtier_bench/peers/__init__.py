"""`memtier bench peers`: other memories, installed and measured on the same data."""
