"""The SQLite index that follows the ledgers."""
