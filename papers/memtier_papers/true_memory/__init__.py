"""True Memory: the encoding gate."""
