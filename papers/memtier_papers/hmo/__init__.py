"""HMO: importance of lines, personas, and the priorities of cache, buffer and archive."""
