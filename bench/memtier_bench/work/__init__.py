"""`memtier bench work`: whether a block has what the next task of a project needs."""
